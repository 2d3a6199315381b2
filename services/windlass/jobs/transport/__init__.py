"""Owns the servicers of jobs, and the messages of their contract.

May import every other room of jobs; none imports it.
"""
