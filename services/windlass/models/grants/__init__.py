"""Owns grants: the use of what a job made by other projects of its organization.

May import the domain, the store and the messages of models, and ask users.
"""
