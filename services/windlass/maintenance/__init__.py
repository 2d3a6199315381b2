"""Owns what operators do beside a server: status, backup and restore, and the doctor's checks.

May import `serve`, the kernel, `migrations` and `embedded_postgres`; never a service's internals.
"""
