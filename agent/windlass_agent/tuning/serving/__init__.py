"""A trainer's process: serves the port of trainers to whoever started it.

May import the port and its messages.
"""
