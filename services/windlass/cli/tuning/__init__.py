"""Owns the commands of what loops of the tinker SDK have made.

May import the framework and the SDK.
"""
