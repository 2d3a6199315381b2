"""Leases of clusters: devices that a project's pods share by one claim, and who sits there.

May import what `windlass.tuning` may.
"""
