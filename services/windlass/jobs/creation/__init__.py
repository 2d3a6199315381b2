"""Owns the creation of jobs from requests: validation, specification and plan.

May import scheduling, tracking, storage and the domain, and ask files and models.
"""
