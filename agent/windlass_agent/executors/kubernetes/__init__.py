"""Workloads as objects of a Kubernetes cluster, admitted by Kueue.

`render` makes the objects of an attempt, `observe` says what became of them, and the modules
beside them act on both.

It may import `kube`, `kueue`, `inventory`, `federation` and the modules of `executors`; never
`process`, nor engines.
"""
