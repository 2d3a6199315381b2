"""Tunnels into clusters, and people's access to the Kubernetes API through them.

Owns the tables `sessions_*`; serves SessionsService, SessionsAgentService and
SessionsInternalService, and the Kubernetes listener.

May import the contract, the kernel, the wire, `audit` and `key_cache`; never another service.
"""
