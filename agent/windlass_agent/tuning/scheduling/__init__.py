"""Turns among projects and runs, and what goes into a pass; pure.

It imports `requests` and nothing else.
"""
