"""Identities of people: issuers' subjects and invites, and their end when somebody leaves.

May import the tables of users and of sessions.
"""
