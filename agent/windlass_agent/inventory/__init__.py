"""Inventory of the cluster: nodes, accelerators and queues, sent as changes."""
