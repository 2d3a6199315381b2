"""Removal of deleted models, and of those whose tenant leaves.

May import what `models` may, and the modules of `models`.
"""
