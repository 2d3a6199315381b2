"""Kinds of engines, and of trainers, that run in pods.

May import what `windlass_agent.engines` may.
"""
