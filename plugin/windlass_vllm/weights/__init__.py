"""Weights of an engine as another process sees them: files, handles and names.

It imports torch, msgspec and `refusal`.
"""
