"""Usage of requests: read of engines' answers, and kept on disk until the usage service has it.

May import the contract and the kernel, and nothing else of the gateway.
"""
