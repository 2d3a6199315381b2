"""The base model, held once, and the low-rank matrices that rows of a pass go through.

It imports torch, transformers and `requests`.
"""
