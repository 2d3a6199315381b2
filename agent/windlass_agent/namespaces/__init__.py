"""Controllers of what a cluster holds besides workloads: projects' namespaces and quotas.

It imports the inventory, Kueue, the API's client and the executor's settings; never a tunnel.
"""
