"""Owns which cluster takes which job, what waits and why, and what a project can train with.

May import the domain and storage.
"""
