"""The port of trainers and samplers, their records, and those trainers that need no torch.

A trainer is built by whoever composes a server; the tuning service sees this port alone.

May import the kernel, `windlass.modelfiles` and confinement's filter of environments.
"""
