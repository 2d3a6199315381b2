"""API keys: their rows, what they lose with their owners, and their revocation.

May import the domain, the standing of members and the tables of users.
"""
