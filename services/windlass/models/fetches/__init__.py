"""Owns fetches: models that the server gets from a hub, from the wish to the files.

May import the domain, the manifests, the store and the artifacts of models.
"""
