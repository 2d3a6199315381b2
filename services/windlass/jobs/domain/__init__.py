"""Owns what a job is, and the machine of its states: records and pure functions.

May import the kernel and the packages of HTTP bodies; nothing else of jobs.
"""
