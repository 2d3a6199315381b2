"""Engines as processes: the driver, the life of each one, and the adapters that it may read.

It imports the allotments and processes beside it, and `windlass_agent.engines`; never `jobs`.
"""
