"""Trainers and samplers as pods of a cluster: rows, workloads, and the way to them.

May import what `windlass.tuning` may.
"""
