"""Routes of the audit log beside those of its events.

May import what `admin` may.
"""
