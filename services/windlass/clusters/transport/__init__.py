"""Owns the servicers of clusters, the messages of their contract, and the loop of their watches.

May import storage and the domain.
"""
