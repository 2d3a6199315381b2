"""Routes of engines that are trained while they serve.

May import what the routes beside them may.
"""
