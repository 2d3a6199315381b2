"""The engine behind the tuning service's port of trainers.

It imports `windlass.tuning_api` and the engine's packages.
"""
