"""API keys: their rows, what they lose with their owners, their revocation, and policies for them.

May import the domain, the messages, the standing of members and the tables of users.
"""
