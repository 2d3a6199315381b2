"""Usage of requests, kept on disk until the usage service has it.

May import the contract and the kernel, and nothing else of the gateway.
"""
