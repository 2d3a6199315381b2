"""Owns calls to a server: the session, paths, server-sent events, WebSocket, when to connect again.

May import the errors.
"""
