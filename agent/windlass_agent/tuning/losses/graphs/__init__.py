"""Losses that tenants write: graphs of allowed operations, read as data and never as code.

It imports torch, msgspec, numpy and `requests`.
"""
