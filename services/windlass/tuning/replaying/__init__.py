"""Computes a run's log again beside the run: to prove it, or to begin another run within it.

May import the execution, the storage, the domain, and the port of trainers.
"""
