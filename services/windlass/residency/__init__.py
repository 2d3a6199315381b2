"""Residency: which stores and clusters may have what a project has, by the project's geography.

May import the kernel and the contract; services import it.
"""
