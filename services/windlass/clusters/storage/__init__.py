"""Owns the tables of clusters, and every query on them.

May import the domain.
"""
