"""Authentication of requests by API key, and their end once the key loses its permissions.

May import the contract, the kernel, `key_cache`, and of the gateway its errors.
"""
