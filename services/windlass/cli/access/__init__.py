"""Owns the commands of credentials: signing in, stored contexts, keys, secrets.

May import the framework and the SDK.
"""
