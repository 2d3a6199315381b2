"""Port of trainers, its records, and what implements it without torch.

May import what `windlass.tuning_api` may.
"""
