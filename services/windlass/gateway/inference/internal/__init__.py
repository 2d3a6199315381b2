"""Requests of other services, carried out as those of clients are.

May import the kernel and the gateway's inference.
"""
