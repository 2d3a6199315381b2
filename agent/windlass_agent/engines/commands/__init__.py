"""Commands of engines that are others' programs: their flags, and whether they are there.

May import `windlass.engine_arguments` and the kernel.
"""
