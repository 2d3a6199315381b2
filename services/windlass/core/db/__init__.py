"""Owns access to Postgres: transactions, leases, wake-ups, paging.

May import the modules of the kernel, `core.config` and `windlass.metrics`; never `core.rpc`.
"""

from windlass.core.db.database import Database, metadata

__all__ = ["Database", "metadata"]
