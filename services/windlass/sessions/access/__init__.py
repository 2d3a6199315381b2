"""Owns who may send which request to which cluster, and what is open by it.

May import the contract, the kernel and the wire; asks users, rbac and clusters.
"""
