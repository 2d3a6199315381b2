"""The table of serving stacks, and every query on it."""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from windlass.core.db import Database, metadata
from windlass.core.errors import NotFound
from windlass.core.rpc import audited
from windlass.inference.loads import CLOCK
from windlass.inference.stacks.stack import Stack, require_same_place

stacks = sa.Table(
    "inference_stacks",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("cluster_id", sa.Text, nullable=False),
    sa.Column("url", sa.Text, nullable=False),
    sa.Column("dialect", sa.Text, nullable=False),
    sa.Column("ca", sa.Text, nullable=False),
    sa.Column("sealed_key", sa.LargeBinary, nullable=False),
    sa.Column("max_concurrency", sa.Integer, nullable=False),
    sa.Column("context_length", sa.Integer, nullable=False),
    sa.Column("embeddings", sa.Boolean, nullable=False),
    sa.Column("rerank", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("score", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("updated_at", sa.Double, nullable=False),
)
_NAMES = tuple(one.name for one in fields(Stack))


def _to_stack(row: Any) -> Stack:
    return Stack(**{name: getattr(row, name) for name in _NAMES})


async def all_stacks(connection: AsyncConnection) -> dict[str, Stack]:
    """Every stack by name."""
    return {row.name: _to_stack(row) for row in await connection.execute(stacks.select())}


class StackStore:
    """Serving stacks, of the whole installation."""

    def __init__(self, database: Database):
        self._database = database

    async def put(self, stack: Stack, *, keeps_key: bool) -> Stack:
        """Stores or replaces a stack, perhaps but for its key; the times are the database's.

        Raises InvalidArgument where a key that is kept would be told to somebody else.
        """
        values = {name: getattr(stack, name) for name in _NAMES}
        values |= {"created_at": CLOCK, "updated_at": CLOCK}
        kept = {"created_at", "sealed_key"} if keeps_key else {"created_at"}
        changed = {name: value for name, value in values.items() if name not in kept}
        new = insert(stacks).values(values).on_conflict_do_nothing().returning(stacks)
        is_it = stacks.c.name == stack.name
        async with self._database.begin() as connection:
            row = (await connection.execute(new)).first()
            if row is not None:
                audited.change(None, stack)
            else:
                # Locked, so that nobody gives it another key or place before it is changed.
                query = stacks.select().where(is_it).with_for_update()
                former = (await connection.execute(query)).first()
                if former is not None and keeps_key:
                    require_same_place(_to_stack(former), stack)
                if former is not None:
                    audited.change(_to_stack(former), stack)
                replace = stacks.update().where(is_it).values(changed).returning(stacks)
                row = (await connection.execute(replace)).first()
        return _to_stack(row) if row is not None else await self.put(stack, keeps_key=keeps_key)

    async def get(self, name: str) -> Stack:
        """A stack; raises NotFound."""
        query = stacks.select().where(stacks.c.name == name)
        async with self._database.autocommit() as connection:
            row = (await connection.execute(query)).first()
        if row is None:
            raise NotFound(
                f"There is no serving stack {name[:63]!r}.", reason="stack_not_found", param="stack"
            )
        return _to_stack(row)

    async def list(self, *, after: str, limit: int) -> Sequence[Stack]:
        """Stacks by name."""
        query = stacks.select().where(stacks.c.name > after).order_by(stacks.c.name).limit(limit)
        async with self._database.autocommit() as connection:
            return [_to_stack(row) for row in await connection.execute(query)]

    async def delete(self, name: str) -> None:
        """Forgets a stack; one that is not there is no error."""
        statement = stacks.delete().where(stacks.c.name == name).returning(stacks)
        async with self._database.begin() as connection:
            row = (await connection.execute(statement)).first()
        audited.change(None if row is None else _to_stack(row), None)
