"""The kernel: what every service stands on, without knowledge of any of them.

May import of the contract only who may call what, and `windlass.metrics`; never a service.
"""
