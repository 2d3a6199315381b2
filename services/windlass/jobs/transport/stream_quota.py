"""Quota of a project's and an organization's open event streams, over all processes.

A stream is a row while it is open. Its process renews one row of its own; the streams of one
that died count no more once that row has run out.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from windlass.core.db import Database, metadata
from windlass.core.db.leases import run_loop, tolerated
from windlass.core.db.wake import Wake
from windlass.core.ids import new_id
from windlass.core.quotas import Quota, Quotas

# A process renews its row well before; the streams of a dead one count for so long.
HOLDER_SECONDS = 15
RENEW_SECONDS = 4.0
# Renewals after which a process looks for rows that nothing stands for.
SWEEP_EVERY = 15

holders = sa.Table(
    "jobs_stream_holders",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
)
streams = sa.Table(
    "jobs_streams",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("organization_id", sa.Text, nullable=False),
    sa.Column("project_id", sa.Text, nullable=False),
    sa.Column("holder", sa.Text, nullable=False, index=True),
    sa.Index(None, "organization_id", "project_id"),
)
_NOW = sa.func.clock_timestamp()


def _seconds(number: float) -> sa.Function[Any]:
    return sa.func.make_interval(0, 0, 0, 0, 0, 0, number)


_NEXT = _NOW + _seconds(HOLDER_SECONDS)


class EventStreams:
    """The open event streams of this process, counted with those of the others."""

    def __init__(self, database: Database, quotas: Quotas, wake: Wake):
        self._database = database
        self._quotas = quotas
        self._holder = new_id("holder_")
        # Set here alone, so that no other process is woken.
        self._changed = wake.listen(self._holder)
        self._open = 0
        self._ended: list[str] = []
        self._until_sweep = SWEEP_EVERY

    @asynccontextmanager
    async def one(self, organization_id: str, project_id: str) -> AsyncIterator[None]:
        """Counts a stream until the end of the block; raises ResourceExhausted."""
        stream = new_id("stream_")
        self._open += 1
        try:
            await self._begin(stream, organization_id, project_id)
            yield
        finally:
            self._open -= 1
            self._ended.append(stream)
            self._changed.set()

    async def run(self) -> None:
        """Forgets what has ended, and renews what is open, until cancelled."""
        await run_loop("jobs streams", self._changed, self.keep, poll_seconds=RENEW_SECONDS)

    async def keep(self) -> bool:
        """Brings the rows to what is open; no more is to be done."""
        ended, self._ended = self._ended, []
        if not ended and not self._open:
            return False
        try:
            async with self._database.begin() as connection:
                if ended:
                    await connection.execute(streams.delete().where(streams.c.id.in_(ended)))
                await self._renew(connection)
                self._until_sweep -= 1
                if not self._until_sweep:
                    self._until_sweep = SWEEP_EVERY
                    await _sweep(connection)
        except BaseException:
            self._ended += ended
            raise
        return False

    async def close(self) -> None:
        """Lets the streams of this process count no more, as it ends.

        Without the database they count until nobody has renewed them for long enough.
        """
        async with tolerated("jobs streams"), self._database.begin() as connection:
            await connection.execute(streams.delete().where(streams.c.holder == self._holder))
            await connection.execute(holders.delete().where(holders.c.id == self._holder))

    async def _begin(self, stream: str, organization_id: str, project_id: str) -> None:
        row = {"id": stream, "organization_id": organization_id, "project_id": project_id}
        async with self._database.begin() as connection:
            scope = (organization_id, project_id)
            bounds = await self._quotas.hold(connection, Quota.EVENT_STREAMS, *scope)
            # Not what is unbounded, since that may be any number of rows.
            used = {
                name: await _count(connection, *where) if bound else 0
                for name, bound, where in (
                    ("organization", bounds.organization, scope[:1]),
                    ("project", bounds.project, scope),
                )
            }
            bounds.require(organization=used["organization"] + 1, project=used["project"] + 1)
            await connection.execute(streams.insert().values(holder=self._holder, **row))
            await self._renew(connection)

    async def _renew(self, connection: AsyncConnection) -> None:
        row = insert(holders).values(id=self._holder, expires_at=_NEXT)
        # Seldom, however many streams begin.
        is_old = holders.c.expires_at < _NOW + _seconds(HOLDER_SECONDS - RENEW_SECONDS / 2)
        await connection.execute(
            row.on_conflict_do_update(
                index_elements=["id"], set_={"expires_at": _NEXT}, where=is_old
            )
        )


async def _count(connection: AsyncConnection, organization_id: str, project_id: str = "") -> int:
    """Returns how many streams an organization has open, or one of its projects."""
    query = (
        sa.select(sa.func.count())
        .select_from(streams.join(holders, holders.c.id == streams.c.holder))
        .where(streams.c.organization_id == organization_id, holders.c.expires_at > _NOW)
    )
    if project_id:
        query = query.where(streams.c.project_id == project_id)
    return int((await connection.execute(query)).scalar_one())


async def _sweep(connection: AsyncConnection) -> None:
    """Drops what processes left that have ended."""
    long_ago = _NOW - _seconds(HOLDER_SECONDS)
    await connection.execute(holders.delete().where(holders.c.expires_at < long_ago))
    await connection.execute(
        streams.delete().where(streams.c.holder.not_in(sa.select(holders.c.id)))
    )
