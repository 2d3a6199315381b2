"""Owns the connections into clusters: who listens where, who waits for what, and the tables of it.

May import the contract, the kernel and the wire (`windlass.tunnel`).
"""
