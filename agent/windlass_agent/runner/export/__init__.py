"""A process that writes a trained model in other forms: merged weights and GGUF.

It may import torch, and no other room.
"""
