"""Old usage records become sums by the hour: one statement moves them, so a crash loses none."""

from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from windlass.core.db import Database
from windlass.usage.store import AMOUNTS, COUNTS, HOUR_MS, SUMMED_BY, hours, records

# Rows of one statement.
BATCH = 20_000
_LOCK = sa.select(sa.func.pg_try_advisory_xact_lock(sa.func.hashtextextended("usage hours", 0)))


def _moving() -> Any:
    old = (
        sa.select(records.c.id)
        .where(records.c.at_ms < sa.bindparam("before"))
        .order_by(records.c.at_ms)
        .limit(sa.bindparam("batch"))
        .cte("old")
        .prefix_with("MATERIALIZED", dialect="postgresql")
    )
    moved = records.delete().where(records.c.id == old.c.id).returning(records).cte("moved")
    hour = (moved.c.at_ms // HOUR_MS * HOUR_MS).label("starts_at_ms")
    groups = [hour, *(moved.c[name] for name in SUMMED_BY)]
    sums = sa.select(
        *groups,
        *(sa.func.sum(moved.c[name]) for name in AMOUNTS),
        sa.func.count(),
        sa.func.count().filter(moved.c.estimated),
    ).group_by(*groups)
    summed = (*AMOUNTS, *COUNTS)
    row = insert(hours).from_select(["starts_at_ms", *SUMMED_BY, *summed], sums)
    added = {name: hours.c[name] + row.excluded[name] for name in summed}
    return row.on_conflict_do_update(
        index_elements=["starts_at_ms", *SUMMED_BY], set_=added
    ).returning(hours.c.requests)


_MOVE = _moving()


async def roll_up(database: Database, *, before_ms: int, batch: int = BATCH) -> bool:
    """Moves some records of whole hours before a time into their sums; whether there may be more.

    Does nothing while another process does it.
    """
    values = {"before": before_ms - before_ms % HOUR_MS, "batch": batch}
    async with database.begin() as connection:
        if not (await connection.execute(_LOCK)).scalar_one():
            return False
        return bool((await connection.execute(_MOVE, values)).all())
