"""The launcher of a pod that has counted devices for all of a lease: residents are its processes.

May import what `windlass_agent.keeper` may.
"""
