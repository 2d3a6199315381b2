"""The token path: bytes in, bytes out; no RPC, no pydantic, no per-token parsing."""
