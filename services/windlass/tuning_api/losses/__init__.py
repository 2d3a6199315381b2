"""Losses that tenants write, as data: their form and what they may be made of, without torch.

May import what `windlass.tuning_api` may.
"""
