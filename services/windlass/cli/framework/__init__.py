"""Owns what every command has in common: options, calls, errors, output, completion.

May import the SDK, inside functions where it is heavy.
"""
