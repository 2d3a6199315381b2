"""Optimizers: each makes new weights and new moments, and changes nothing in place.

It imports torch, `requests` and `network`.
"""
