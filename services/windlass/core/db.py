"""Postgres: one engine, short transactions, migrations under a lock."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

# One naming convention, so that migrations can name what they change.
metadata = sa.MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "pk": "pk_%(table_name)s",
    }
)


class Database:
    """The shared Postgres. Stores take one and own their tables alone."""

    def __init__(self, url: str, *, pool_size: int = 16):
        self.url = url
        self.engine: AsyncEngine = create_async_engine(
            url, pool_size=pool_size, max_overflow=8, pool_pre_ping=True, pool_recycle=1800
        )

    @asynccontextmanager
    async def begin(self) -> AsyncIterator[AsyncConnection]:
        """One unit of work: commits at the end, rolls back on an exception.

        Never await anything but this connection inside.
        """
        async with self.engine.begin() as connection:
            yield connection

    @asynccontextmanager
    async def read(self) -> AsyncIterator[AsyncConnection]:
        """One connection in autocommit, for a read or a single statement."""
        async with self.engine.connect() as connection:
            yield await connection.execution_options(isolation_level="AUTOCOMMIT")

    async def check(self) -> None:
        """Raises when the database does not answer."""
        async with self.read() as connection:
            await connection.execute(sa.text("SELECT 1"))

    async def close(self) -> None:
        """Closes every pooled connection."""
        await self.engine.dispose()
