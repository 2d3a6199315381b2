"""Postgres: the engine, and what loops and lists need of it."""

from windlass.core.db.database import Database, metadata

__all__ = ["Database", "metadata"]
