"""How workloads run on a cluster: one executor per kind of cluster, behind one port."""
