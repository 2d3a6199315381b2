"""Owns what an attempt is given and what it leaves: inputs, uploads, artifacts and grades.

May import tracking, storage and the domain, and ask files, models and the gateway.
"""
