"""Owns the addresses that hear of a project's ended jobs, and the deliveries to them.

May import storage and the domain, and ask users whether a project is live.
"""
