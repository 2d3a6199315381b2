"""Requests to addresses that tenants name: the server's own networks stay out of reach.

May import the kernel alone.
"""
