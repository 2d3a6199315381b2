"""Engines on Kubernetes: one Deployment for each, and the call of its keeper.

It imports what renders and observes, and the tokens of pods; never the driver of jobs.
"""
