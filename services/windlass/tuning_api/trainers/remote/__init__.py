"""A trainer in a process of its own: its messages, its client, and the process itself.

May import the contract `windlass.api.trainer`, the port, and confinement.
"""
