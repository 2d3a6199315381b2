"""Executors of workloads: one for each kind of cluster, behind one interface.

It may import what reaches a cluster or a machine, such as `kube`, `federation` and `engines`; never
`namespaces`, the tunnel, or the runner.
"""
