"""Losses without torch: what each takes, and as data those that tenants write.

May import what `windlass.tuning_api` may.
"""
