"""Owns calls between processes: interceptor, identities, stubs, tokens and followed streams."""
