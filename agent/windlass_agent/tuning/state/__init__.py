"""Saved states of runs, and adapters in PEFT's format.

It imports torch, safetensors, `requests` and `network`.
"""
