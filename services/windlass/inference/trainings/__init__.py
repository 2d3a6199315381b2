"""Owns trainings of engines in their own memory, and checkpoints, from the request to its end.

May import the domain, the store, the observed state and the servings of inference, and the losses
of `tuning_api`.
"""
