"""Invites of people, and their acceptance.

May import the domain, identities and tables of sign-in, the members and keys of users.
"""
