"""What the control plane wants of a cluster beside workloads: projects' namespaces, and quota."""
