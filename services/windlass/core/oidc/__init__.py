"""OpenID Connect as a relying party: an issuer's metadata and keys, and the tokens it signs.

Issuers are named by tenants, so what they answer is hostile and bounded. May import the kernel
alone.
"""
