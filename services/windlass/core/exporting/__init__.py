"""Copies of all that a tenant has, made by the claims of what leaves.

May import the modules of the kernel.
"""
