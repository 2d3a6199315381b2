"""Owns what becomes of a request for a job: its checks, its specification and its plan.

May import scheduling, tracking, storage and the domain, and ask files and models.
"""
