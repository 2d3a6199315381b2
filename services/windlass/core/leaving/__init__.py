"""Fates of each table and object when an organization or a project leaves, and the work.

May import the modules of the kernel.
"""
