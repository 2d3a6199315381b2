"""Inventory of the cluster: nodes, accelerators and queues, sent as changes.

It imports `kube`, `kueue`, the contract and the kernel; never an executor.
"""
