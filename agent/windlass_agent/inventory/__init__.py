"""What the cluster has: nodes, accelerators, queues; told to the control plane as changes."""
