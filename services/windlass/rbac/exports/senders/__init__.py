"""Ways to a destination. Each takes a batch of events, and returns once the receiver has it.

May import destinations and OCSF, and the kernel.
"""
