"""The schema's history: one Alembic chain for every service's tables."""

import sqlalchemy as sa

from windlass.core.db import metadata
from windlass.migrations.tables import load_tables

# Any constant that no other program locks.
_LOCK = 0x57494E444C415353


def migrate(url: str) -> None:
    """Brings the schema to the head, under a lock that one process holds at a time."""
    load_tables()
    engine = sa.create_engine(url)
    with engine.connect() as lock, lock.begin():
        lock.execute(sa.text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
        metadata.create_all(engine)
    engine.dispose()
