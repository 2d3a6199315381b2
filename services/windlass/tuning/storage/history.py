"""Queries of what a run of a project was asked and answered, and of the states that it left."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from windlass.core.db import Database
from windlass.tuning.domain import unknown_operation
from windlass.tuning.storage.tables import checkpoints, operations

Row = sa.Row[Any]
READ_AT_ONCE = 64
_LONGEST_NUMBER = 10


class RunHistory:
    """Logs of runs that are over, or go on."""

    def __init__(self, database: Database):
        self._database = database

    async def operation(self, run: Row, named: str) -> Row:
        """An operation of a run by its number or its id; raises NotFound."""
        is_number = named.isascii() and named.isdigit() and len(named) <= _LONGEST_NUMBER
        by_number = (
            sa.and_(operations.c.seq_id == int(named), operations.c.seq_id > 0)
            if (is_number)
            else operations.c.id == named
        )
        query = operations.select().where(_of(run), by_number)
        async with self._database.autocommit() as connection:
            row = (await connection.execute(query)).first()
        if row is None:
            raise unknown_operation(named)
        return row

    async def opening(self, run: Row) -> Row | None:
        """The operation that opened a run; None where its body is gone."""
        query = operations.select().where(_of(run), operations.c.slot == f"{run.id}#open", _THERE)
        async with self._database.autocommit() as connection:
            return (await connection.execute(query)).first()

    async def last_gone(self, run: Row, place: int) -> int:
        """The last place, up to one, whose body is gone; 0 where all are there."""
        query = sa.select(sa.func.max(operations.c.place)).where(
            _of(run), operations.c.place > 0, operations.c.place <= place, ~_THERE
        )
        async with self._database.autocommit() as connection:
            return int((await connection.execute(query)).scalar_one() or 0)

    async def states(self, run: Row, first: int, last: int) -> Sequence[Row]:
        """Saved states of a run with places from the first to the last one, in that order."""
        query = (
            checkpoints.select()
            .where(checkpoints.c.run_id == run.id, checkpoints.c.project_id == run.project_id)
            .where(~checkpoints.c.is_for_sampler, checkpoints.c.state == "ready")
            .where(checkpoints.c.place >= first, checkpoints.c.place <= last)
            .order_by(checkpoints.c.place, checkpoints.c.created_at)
        )
        async with self._database.autocommit() as connection:
            return (await connection.execute(query)).all()

    async def page(self, run: Row, after: int, last: int) -> Sequence[Row]:
        """Operations that were carried out after a place, up to the last one, the first of them."""
        query = (
            operations.select()
            .where(_of(run), operations.c.place > after, operations.c.place <= last)
            .order_by(operations.c.place)
            .limit(READ_AT_ONCE)
        )
        async with self._database.autocommit() as connection:
            return (await connection.execute(query)).all()


_THERE = sa.or_(operations.c.body.is_not(None), operations.c.body_key != "")


def _of(run: Row) -> sa.ColumnElement[bool]:
    return sa.and_(operations.c.run_id == run.id, operations.c.project_id == run.project_id)
