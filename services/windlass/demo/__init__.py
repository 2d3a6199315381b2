"""The demo of `make demo`: a tiny base model, and questions that it gets wrong.

May import the SDK and `windlass.datasets`, and torch inside a function of `tiny_model`; no service.
"""
