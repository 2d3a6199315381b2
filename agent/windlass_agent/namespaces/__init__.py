"""What the control plane wants of a cluster beside workloads: projects' namespaces, and quota.

It imports the inventory, Kueue, the API's client and the executor's settings; never a tunnel.
"""
