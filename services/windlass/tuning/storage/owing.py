"""Queries of usage that the usage service has not been told yet."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from windlass.core.db import Database
from windlass.tuning.storage.tables import owed_usage

AT_ONCE = 1000
ANY = owed_usage.c.id != sa.literal_column("''")


class OwedUsageStore:
    """Usage of every project, until it was told."""

    def __init__(self, database: Database):
        self._database = database

    async def owed(self) -> Sequence[sa.Row[Any]]:
        """Some of it."""
        async with self._database.autocommit() as connection:
            return (await connection.execute(owed_usage.select().limit(AT_ONCE))).all()

    async def told(self, ids: Sequence[str]) -> None:
        """Forgets what was told."""
        async with self._database.autocommit() as connection:
            await connection.execute(owed_usage.delete().where(owed_usage.c.id.in_(ids)))
