"""Owns the commands of organizations and projects: members, quotas, usage.

May import the framework and the SDK.
"""
