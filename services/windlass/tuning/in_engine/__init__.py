"""Runs that train the engine of a served model in its own memory, and samplers of them.

May import the domain of tuning and the port of trainers.
"""
