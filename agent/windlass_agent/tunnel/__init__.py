"""The agent's end of the tunnel: it dials out, and connects what the server asks for.

`tunnel.Tunnel` holds the control stream; each connection that it is asked for becomes a call
of its own (`attaching`), joined to a target of an allow-list (`targets`): the API server
(`kubernetes`), or a workload of this agent (`workloads`).

It may import `executors`, `namespaces`, `kube`, and the wire that it shares with services
(`windlass.tunnel`).
"""
