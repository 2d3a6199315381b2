"""Versions of the weights, put in place in vLLM's own process while it serves.

Imports `windlass.weight_versions`, `windlass.inference_api` and `windlass_agent.engines.versioned`,
which want numpy, msgspec, zstandard and xxhash: it runs in the environment of vLLM, and not in the
agent's. vLLM itself is known by the few calls of `EngineCalls`. docs/adr/0090.
"""
