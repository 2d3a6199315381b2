"""Routes of organizations and projects, and of their deletion.

May import what `gateway.admin` may.
"""
