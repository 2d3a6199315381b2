"""Optimizers that apply each gradient as the backward pass makes it.

It imports torch, safetensors, msgspec and `refusal`.
"""
