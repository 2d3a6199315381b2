"""Trainings of engines of this machine in their own memory, and checkpoints of their weights.

May import the agent's engines, and nothing of how they are run.
"""
