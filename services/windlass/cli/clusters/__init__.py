"""Owns the commands of clusters: their assignments, the quota of their queues, kubectl.

May import the framework and the SDK.
"""
