"""The keeper of an engine in a pod: fetches its files, steers it, and is the pod's only door.

A program of its own, beside the engine's container, or several in a pod that hosts trainers. It
imports `windlass_agent.engines`, downloads and the tether of runners; never an executor, and of the
agent nothing but the call that it makes to it.
"""
