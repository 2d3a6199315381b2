"""SCIM 2.0 (RFC 7643, 7644) under `/scim/v2`, over the users service's directory.

May import the contract, the kernel, and of the gateway its errors and the exchange. The modules
that need scim2-models are imported at the first request, since it takes 0.2 s to load.
"""
