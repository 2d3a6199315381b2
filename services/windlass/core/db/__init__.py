"""Owns access to Postgres: transactions, leases, wake-ups, paging."""

from windlass.core.db.database import Database, metadata

__all__ = ["Database", "metadata"]
