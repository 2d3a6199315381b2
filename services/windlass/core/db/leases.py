"""Leased rows: work that one process holds at a time, and that outlives it.

A leased table has `lease_owner` and `lease_until`. Claim takes rows whose lease
is free or past; the holder works outside any transaction and applies its result
only where it still holds the lease, so a slow or dead holder changes nothing.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from windlass.core import telemetry
from windlass.core.backoff import Backoff
from windlass.core.db import Database
from windlass.core.db.wake import Listener
from windlass.core.ids import new_id
from windlass.metrics.process import LOOP_FAILURES

log = telemetry.logger("leases")
REST_SECONDS = 20.0
Row = sa.Row[Any]


def lease_columns() -> tuple[sa.Column[Any], sa.Column[Any]]:
    """The two columns of a leased table."""
    return (
        sa.Column("lease_owner", sa.Text),
        sa.Column("lease_until", sa.DateTime(timezone=True)),
    )


async def claim(
    database: Database,
    table: sa.Table,
    where: sa.ColumnElement[bool],
    *,
    limit: int,
    seconds: float,
    order: sa.ColumnElement[Any] | None = None,
) -> tuple[str, Sequence[Row]]:
    """Leases up to `limit` rows that match, oldest first; returns the token and the rows."""
    async with database.begin() as connection:
        return await claim_within(
            connection, table, where, limit=limit, seconds=seconds, order=order
        )


async def claim_within(
    connection: AsyncConnection,
    table: sa.Table,
    where: sa.ColumnElement[bool],
    *,
    limit: int,
    seconds: float,
    order: sa.ColumnElement[Any] | None = None,
) -> tuple[str, Sequence[Row]]:
    """Leases rows as `claim` does, in a transaction that has more to it."""
    token = new_id("lease_")
    free = sa.or_(table.c.lease_until.is_(None), table.c.lease_until < sa.func.now())
    # A materialized CTE: `id IN (subselect)` plans a scan per row.
    picked = (
        sa.select(table.c.id)
        .where(where, free)
        .order_by(table.c.id if order is None else order)
        .limit(limit)
        .with_for_update(skip_locked=True)
        .cte("picked")
        .prefix_with("MATERIALIZED", dialect="postgresql")
    )
    statement = (
        table.update()
        .where(table.c.id == picked.c.id)
        .values(
            lease_owner=token,
            lease_until=sa.func.now() + sa.func.make_interval(0, 0, 0, 0, 0, 0, seconds),
        )
        .returning(table)
    )
    return token, (await connection.execute(statement)).all()


def held(table: sa.Table, token: str) -> sa.ColumnElement[bool]:
    """The guard of an apply: true while the token's lease was not taken by another."""
    return table.c.lease_owner == token


def released() -> dict[str, None]:
    """The values that give a lease back."""
    return {"lease_owner": None, "lease_until": None}


async def run_loop(
    name: str,
    listener: Listener,
    once: Callable[[], Awaitable[bool]],
    *,
    poll_seconds: float = 2.0,
    resting: Callable[[], Awaitable[bool]] | None = None,
) -> None:
    """Runs `once` whenever woken, at least each `poll_seconds`, until cancelled.

    `once` answers whether there may be more to do at once. While `resting` says that no row
    needs looking after, whatever time it is, nothing else is asked, at first and every
    `REST_SECONDS`, which makes up for a wake-up that got lost. An exception is logged and
    counted, and the loop goes on after a pause that grows to 5 s.
    """
    backoff = Backoff(shortest=0.05, longest=5.0)
    resting = resting or _never
    # What was touched before now is in the rows that are asked for first.
    await listener.wait(0)
    touched, rests = False, True
    while True:
        try:
            # A loop that is woken all the time need not ask.
            quiet = not touched and await resting()
            more = not (quiet and rests) and await once()
            # What was quiet before the last look has been seen so.
            rests = quiet and not more
            backoff.reset()
        except Exception as error:
            LOOP_FAILURES.labels(name).inc()
            log.error("loop_failed", loop=name, exc_info=error)
            await backoff.pause()
            more = True
        if more:
            continue
        if rests:
            touched = await listener.wait_for_beat(REST_SECONDS)
        else:
            touched = await listener.wait(poll_seconds)


@asynccontextmanager
async def tolerated(name: str) -> AsyncIterator[None]:
    """Logs and counts what fails in the block, so that a loop around it goes on.

    A database that is away for a moment ends no process.
    """
    try:
        yield
    except Exception as error:
        LOOP_FAILURES.labels(name).inc()
        log.error("loop_failed", loop=name, exc_info=error)


async def _never() -> bool:
    return False


def no_rows(database: Database, *where: sa.ColumnElement[bool]) -> Callable[[], Awaitable[bool]]:
    """Returns a question for `run_loop`: whether no table has a row of any of the conditions."""
    found = [sa.select(sa.literal(1)).where(one).exists() for one in where]
    return partial(database.ask, sa.not_(sa.or_(*found)))
