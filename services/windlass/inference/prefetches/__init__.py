"""Owns prefetches: files of models that clusters bring early, from the wish to its end.

May import the domain, the observed state and the servings' checks of inference.
"""
