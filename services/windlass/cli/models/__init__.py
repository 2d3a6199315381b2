"""Owns the commands of models, and those that ask one.

May import the framework and the SDK.
"""
