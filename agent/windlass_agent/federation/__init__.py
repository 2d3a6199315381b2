"""Federation in a cluster: its objects that run in another, and objects of others that run here.

It imports `kube`, `kueue`, the contract and the kernel; never an executor.
"""
