"""Owns what a server has, a file per resource: jobs, files, models, clusters and others.

May import the transport and the errors.
"""
