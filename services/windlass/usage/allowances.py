"""Allowances of projects that several gateways draw from: rates, and requests at once."""

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from windlass.core.db import Database, metadata

# A holder renews its slots well before; those of a dead one are free after this.
SLOT_SECONDS = 15

buckets = sa.Table(
    "usage_buckets",
    metadata,
    sa.Column("project_id", sa.Text, primary_key=True),
    sa.Column("kind", sa.Text, primary_key=True),
    sa.Column("level", sa.Double, nullable=False),
    # The database's own clock, since gateways' clocks differ.
    sa.Column("at", sa.Double, nullable=False),
)
slots = sa.Table(
    "usage_slots",
    metadata,
    sa.Column("project_id", sa.Text, primary_key=True),
    sa.Column("holder", sa.Text, primary_key=True),
    sa.Column("held", sa.Integer, nullable=False),
    sa.Column("expires_at", sa.Double, nullable=False),
)
_NOW = sa.func.extract("epoch", sa.func.clock_timestamp())


@dataclass(frozen=True, slots=True)
class BucketDraw:
    """Draw of one gateway from a bucket; amounts are requests or tokens."""

    per_minute: int
    needed: float
    wanted: float
    settled: float


@dataclass(frozen=True, slots=True)
class Draw:
    """Draw of one gateway from a project's allowance."""

    project_id: str
    holder: str
    buckets: dict[str, BucketDraw]
    concurrent_limit: int
    slots_active: int
    slots_wanted: int


def fill(level: float, *, seconds: float, draw: BucketDraw) -> tuple[float, float]:
    """Return the new level and what is granted of it.

    The bucket refills to `per_minute` within a minute and is never fuller; what is settled may
    take it below zero.
    """
    level = min(draw.per_minute, level + max(0.0, seconds) * draw.per_minute / 60)
    level = min(draw.per_minute, level - draw.settled)
    granted = min(draw.wanted, level) if 0 < draw.needed <= level else 0.0
    return level - granted, granted


class AllowanceStore:
    """Every query on allowances."""

    def __init__(self, database: Database):
        self._database = database

    async def draw(self, draw: Draw) -> tuple[dict[str, tuple[float, float]], int]:
        """Return (granted, level) of each bucket, and how many slots the holder has now."""
        async with self._database.begin() as connection:
            rates = {
                # In one order, so that two gateways never wait for each other.
                kind: await _draw_bucket(connection, draw.project_id, kind, draw.buckets[kind])
                for kind in sorted(draw.buckets)
            }
            held = await _draw_slots(connection, draw) if draw.concurrent_limit else 0
        return rates, held


async def _draw_bucket(
    connection: AsyncConnection, project_id: str, kind: str, draw: BucketDraw
) -> tuple[float, float]:
    row = {"project_id": project_id, "kind": kind, "level": float(draw.per_minute)}
    await connection.execute(insert(buckets).values(at=_NOW, **row).on_conflict_do_nothing())
    mine = sa.and_(buckets.c.project_id == project_id, buckets.c.kind == kind)
    query = sa.select(buckets.c.level, (_NOW - buckets.c.at).label("seconds"))
    found = (await connection.execute(query.where(mine).with_for_update())).one()
    level, granted = fill(float(found.level), seconds=float(found.seconds), draw=draw)
    await connection.execute(buckets.update().where(mine).values(level=level, at=_NOW))
    return granted, level


async def _draw_slots(connection: AsyncConnection, draw: Draw) -> int:
    # Draws of one project take turns, also where no row exists yet.
    lock = sa.func.pg_advisory_xact_lock(sa.func.hashtextextended(draw.project_id, 0))
    await connection.execute(sa.select(lock))
    of_others = sa.select(sa.func.coalesce(sa.func.sum(slots.c.held), 0)).where(
        slots.c.project_id == draw.project_id,
        slots.c.holder != draw.holder,
        slots.c.expires_at > _NOW,
    )
    free = draw.concurrent_limit - int((await connection.execute(of_others)).scalar_one())
    held = max(draw.slots_active, min(draw.slots_wanted, free))
    row: dict[str, Any] = {"held": held, "expires_at": _NOW + SLOT_SECONDS}
    statement = insert(slots).values(project_id=draw.project_id, holder=draw.holder, **row)
    await connection.execute(
        statement.on_conflict_do_update(index_elements=["project_id", "holder"], set_=row)
    )
    return held


async def forget_idle(database: Database, *, idle_seconds: float = 3600.0) -> None:
    """Drop what says nothing any more: full buckets, and slots of gateways that are gone."""
    bound = _NOW - idle_seconds
    async with database.begin() as connection:
        await connection.execute(buckets.delete().where(buckets.c.at < bound))
        await connection.execute(slots.delete().where(slots.c.expires_at < bound))
