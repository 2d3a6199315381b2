"""Owns what a cluster, its workloads, its policy and its quota are: records and pure functions.

May import the contract and the kernel.
"""
