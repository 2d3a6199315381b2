"""The tunnel's wire, common to services and agents: byte streams, HTTP/1.1, TLS.

May import the contract and the kernel.
"""
