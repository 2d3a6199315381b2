"""Losses by name: what they take, their formulas and their metrics.

It imports torch, numpy, msgspec, `requests` and `network`.
"""
