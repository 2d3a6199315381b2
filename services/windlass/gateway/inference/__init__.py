"""The token path: bytes in, bytes out; no RPC, no pydantic, no per-token parsing.

May import the contract, the kernel, `inference_api`, graders and the sandbox, the wire, and of the
gateway `limits`, `usage` and the modules beside them; no routes of FastAPI.
"""
