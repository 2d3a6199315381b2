"""Owns the commands that run on the server's machine, without a key.

May import the framework, and services inside functions.
"""
