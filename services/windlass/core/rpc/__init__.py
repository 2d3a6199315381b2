"""Owns calls between processes: interceptor, identities, stubs, tokens and followed streams.

May import the other rooms of the kernel, and of the contract who may call what.
"""
