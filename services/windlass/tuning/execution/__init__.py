"""Carries the log out: runs in the order of their numbers, samples as they come.

May import the storage, the domain, and the port of trainers.
"""
