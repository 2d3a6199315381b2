"""Roles for a time, on request: a member asks, others approve.

May import the domain, the standing, the roles, the keys and the tables of users.
"""
