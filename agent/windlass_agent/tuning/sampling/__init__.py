"""Continuations of prompts by weights that do not move.

It imports torch, transformers, `requests`, `scheduling`, `network` and `state`.
"""
