"""Owns what operators do beside a server: status, backup and restore, and the doctor's checks.

May import the kernel, `migrations`, `embedded_postgres`, `confinement`, and how the agent sees its
machine; never a service's internals.
"""
