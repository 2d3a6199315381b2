"""Owns the tables of tuning and their queries, each scoped by a project.

May import the domain.
"""
