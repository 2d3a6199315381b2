"""Owns serving stacks that others run: what an operator says of them, and their models' adoption.

It imports the contract, the kernel, the routes of engines, and of inference its clock alone.
"""
