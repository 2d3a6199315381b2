"""Versions of the weights at an engine: which requests are held to one, whatever engine it is.

Imports `windlass.inference_api` and the standard library, so that the process of another engine
may use it. docs/adr/0086 and docs/adr/0090.
"""
