"""Owns the Kubernetes listener: its sockets, its certificate, and the way of a request.

May import access and the tunnel.
"""
