"""Decisions on who lives on a device, and whose turn it is; pure.

The service keeps rows by them, and the simulator a clock of its own. Imports msgspec alone.
"""
