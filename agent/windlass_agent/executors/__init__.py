"""Executors run workloads on a cluster: one for each kind of cluster, behind one interface."""
