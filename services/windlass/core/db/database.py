"""Postgres: one engine, short transactions, migrations under a lock."""

import select
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import DisconnectionError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.pool import QueuePool

from windlass.core.db.coalescing import Coalescer
from windlass.core.db.yielding import let_others_first
from windlass.metrics import database as metrics

# A connection that rested longer is asked whether it lives; to ask each time would
# cost as much as the statement that follows.
RESTED_SECONDS = 30.0
# Beyond the size of a pool, and closed when they are given back.
MAX_OVERFLOW = 4

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
        # A pool for each mode, since to change a connection's back and forth costs two
        # thirds of a short read.
        self._writing = _engine(url, pool_size=pool_size // 2)
        self._reading = _engine(
            url,
            pool_size=pool_size // 2,
            isolation_level="AUTOCOMMIT",
            skip_autocommit_rollback=True,
        )
        self._questions: Coalescer[sa.ColumnElement[bool], bool] = Coalescer(
            "questions", self._answer, abreast=1
        )

    @asynccontextmanager
    async def begin(self) -> AsyncIterator[AsyncConnection]:
        """Begins one unit of work: commits at the end, rolls back on an exception.

        Never await anything but this connection inside.
        """
        async with self._writing.begin() as connection:
            yield connection

    @asynccontextmanager
    async def autocommit(self) -> AsyncIterator[AsyncConnection]:
        """Yields a connection in autocommit, for a read or a single statement."""
        connection = await self._reading.connect()
        try:
            yield connection
        finally:
            # Nothing is rolled back, so this waits for nothing: no cancellation can come between,
            # from which `async with` would guard it by a task of its own.
            await connection.close()

    @asynccontextmanager
    async def patient(self) -> AsyncIterator[AsyncConnection]:
        """Yields a connection in autocommit of its own, for long work that nobody waits for.

        On this machine its process lets all others go first; see `let_others_first`.
        """
        connection = await self._reading.connect()
        try:
            raw = await connection.get_raw_connection()
            let_others_first(raw.driver_connection)
            # Its process keeps its priority: it is for nobody else.
            await connection.run_sync(sa.Connection.detach)
            yield connection
        finally:
            await connection.close()

    async def ask(self, question: sa.ColumnElement[bool]) -> bool:
        """Answers a question about rows; those that come together share a statement."""
        return await self._questions(question)

    async def _answer(self, questions: Sequence[sa.ColumnElement[bool]]) -> list[bool]:
        distinct = list(dict.fromkeys(questions))
        named = [one.label(f"answer_{number}") for number, one in enumerate(distinct)]
        async with self.autocommit() as connection:
            answers = (await connection.execute(sa.select(*named))).one()
        found = dict(zip(distinct, map(bool, answers), strict=True))
        return [found[question] for question in questions]

    def expose(self) -> None:
        """Shows the connections of the pools in the metrics of this process."""
        for name, engine in (("write", self._writing), ("read", self._reading)):
            if isinstance(pool := engine.pool, QueuePool):
                metrics.CONNECTIONS.labels(name, "used").set_function(pool.checkedout)
                metrics.CONNECTIONS.labels(name, "idle").set_function(pool.checkedin)
                metrics.CONNECTIONS_MAX.labels(name).set(pool.size() + MAX_OVERFLOW)

    async def check(self) -> None:
        """Raises when the database does not answer."""
        async with self.autocommit() as connection:
            await connection.execute(sa.text("SELECT 1"))

    async def close(self) -> None:
        """Closes every pooled connection."""
        for engine in (self._writing, self._reading):
            await engine.dispose()


def _engine(url: str, *, pool_size: int, **options: Any) -> AsyncEngine:
    engine = create_async_engine(
        url,
        pool_size=pool_size,
        max_overflow=MAX_OVERFLOW,
        pool_recycle=1800,
        # The connection used last has not rested, and need not be asked whether it lives.
        pool_use_lifo=True,
        **options,
    )
    dialect = engine.dialect

    def check(connection: Any, record: Any, _: Any) -> None:
        rested = time.monotonic() - record.info.get("used_at", 0.0)
        if rested < RESTED_SECONDS and not _has_heard(connection.driver_connection.fileno()):
            return
        try:
            dialect.do_ping(connection)
        except Exception as error:
            raise DisconnectionError("the connection is gone") from error

    def note(_: Any, record: Any) -> None:
        record.info["used_at"] = time.monotonic()

    sa.event.listen(engine.sync_engine, "checkout", check)
    sa.event.listen(engine.sync_engine, "checkin", note)
    return engine


def _has_heard(descriptor: int) -> bool:
    """Returns True if a resting connection has something to read, as one that the server ended."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))
