"""Ends of what samplers are asked, numbered for each sampler in the order of their commits.

A number is drawn under the lock of the sampler's row, so that whoever sees one has seen all before.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY

from windlass.core.db import Database
from windlass.core.db.leases import released
from windlass.tuning.domain import CLIENT_NUMBERS
from windlass.tuning.storage.log import QUEUED
from windlass.tuning.storage.tables import operations, samplers

# Of one answer; a cursor says where the rest begins.
AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class EndsQuery:
    """A question of one client of a sampler: ends after a cursor."""

    project_id: str
    sampler_id: str
    client_number: int
    cursor: int


class NumberedEnd(NamedTuple):
    """Parts of a statement that ends one request of a sampler: its id, and the end's number."""

    ids: sa.CTE
    number: sa.ColumnElement[int]


def numbered(*where: sa.ColumnElement[bool]) -> NumberedEnd:
    """Draws the number of the end of one request that waits still."""
    mine = (
        sa.select(operations.c.id, operations.c.sampler_id)
        .where(*where, QUEUED)
        .with_for_update()
        .cte("mine")
    )
    counted = (
        samplers.update()
        .where(samplers.c.id == mine.c.sampler_id)
        .values(ended=samplers.c.ended + 1)
        .returning(samplers.c.ended)
        .cte("counted")
    )
    return NumberedEnd(mine, sa.func.coalesce(sa.select(counted.c.ended).scalar_subquery(), 0))


def ending(
    where: sa.ColumnElement[bool], result: bytes | None, result_key: str, now: int
) -> sa.Update:
    """The statement that ends one request of a sampler which waits still, and numbers its end."""
    mine = numbered(where)
    return (
        operations.update()
        .where(operations.c.id == mine.ids.c.id)
        .values(
            state="done",
            result=result,
            result_key=result_key,
            finished_at=now,
            ended=mine.number,
            **released(),
        )
    )


def _column(name: str, kind: Any) -> sa.BindParameter[Any]:
    return sa.bindparam(name, type_=ARRAY(kind))


_ASKED = (
    sa.func.unnest(
        _column("numbers", sa.BigInteger),
        _column("projects", sa.Text),
        _column("samplers", sa.Text),
        _column("firsts", sa.BigInteger),
        _column("cursors", sa.BigInteger),
    )
    .table_valued("number", "project_id", "sampler_id", "first", "cursor", name="asked")
    .render_derived()
)
_FOUND = (
    sa.select(operations.c.id, operations.c.ended)
    .where(
        operations.c.sampler_id == _ASKED.c.sampler_id,
        operations.c.project_id == _ASKED.c.project_id,
        operations.c.ended > _ASKED.c.cursor,
        operations.c.ended > sa.literal_column("0"),
        operations.c.seq_id >= _ASKED.c.first,
        operations.c.seq_id < _ASKED.c.first + CLIENT_NUMBERS,
    )
    .order_by(operations.c.ended)
    .limit(AT_ONCE)
    .lateral("found")
)
_ENDS = sa.select(_ASKED.c.number, _FOUND.c.id, _FOUND.c.ended).join(_FOUND, sa.true())


async def ends(database: Database, asked: Sequence[EndsQuery]) -> Sequence[list[tuple[str, int]]]:
    """The ids and numbers of ends for each query, in their order."""
    values = {
        "numbers": list(range(len(asked))),
        "projects": [one.project_id for one in asked],
        "samplers": [one.sampler_id for one in asked],
        "firsts": [one.client_number * CLIENT_NUMBERS for one in asked],
        "cursors": [one.cursor for one in asked],
    }
    found: list[list[tuple[str, int]]] = [[] for _ in asked]
    async with database.autocommit() as connection:
        for row in await connection.execute(_ENDS, values):
            found[row.number].append((row.id, row.ended))
    return [sorted(one, key=lambda end: end[1]) for one in found]
