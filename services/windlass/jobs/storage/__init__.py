"""Owns the tables of jobs and their queries: jobs, events, logs, what is owed to other services.

May import the domain.
"""
