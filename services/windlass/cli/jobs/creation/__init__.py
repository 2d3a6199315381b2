"""Owns `windlass jobs create`: the document of a job, its settings by name, and its examples.

May import the framework, its neighbours among the commands of jobs, and the SDK.
"""
