"""Owns calls to other services on a job's behalf, and what clusters say of its workloads.

May import attempts, storage and the domain.
"""
