"""Tokens per key, model and project, for inference and training.

Owns the table `usage_records`; serves UsageService and UsageInternalService.

May import the contract, the kernel and `policy`; never another service.
"""
