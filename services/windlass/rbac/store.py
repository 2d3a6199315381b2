"""The audit log: reads."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from windlass.audit_chain.walk import ChainFault, ChainWalk
from windlass.core.db import Database
from windlass.rbac.tables import STORED, audit_chains, audit_events

WALK_ROWS = 1000


@dataclass(frozen=True, slots=True)
class PagePlace:
    """The beginning of a page: at an event's id, or that of the list.

    `backward`: what comes right before that event, read away from it.
    """

    cursor: str = ""
    oldest_first: bool = False
    backward: bool = False


class AuditStore:
    """Every question to the audit log."""

    def __init__(self, database: Database):
        self._database = database

    async def list(
        self, organization_id: str, which: sa.ColumnElement[bool], place: PagePlace, *, limit: int
    ) -> Sequence[Any]:
        """Events of the organization, newest first if not told.

        None beyond an id that is not one of its events.
        """
        events = audit_events.c
        query = audit_events.select().where(events.organization_id == organization_id, which)
        # Towards the beginning of the list they are read the other way round.
        upward = place.oldest_first is not place.backward
        if place.cursor:
            cursor = (
                sa.select(events.sequence)
                .where(events.id == place.cursor, events.organization_id == organization_id)
                .scalar_subquery()
            )
            query = query.where(events.sequence > cursor if upward else events.sequence < cursor)
        order = events.sequence.asc() if upward else events.sequence.desc()
        async with self._database.autocommit() as connection:
            return (await connection.execute(query.order_by(order).limit(limit))).all()

    async def walk(self, walk: ChainWalk, *, until: int) -> ChainFault | None:
        """Follows a chain to the event `until`, or its end before that; returns the first fault."""
        events = audit_events.c
        columns = [events[name] for name in (*STORED, "hash")]
        while walk.sequence < until:
            query = (
                sa.select(*columns)
                .where(events.organization_id == walk.organization_id)
                .where(events.sequence > walk.sequence, events.sequence <= until)
                .order_by(events.sequence)
                .limit(WALK_ROWS)
            )
            async with self._database.autocommit() as connection:
                rows = (await connection.execute(query)).all()
            if not rows:
                return None
            stored = [(dict(zip(STORED, row, strict=False)), row[-1]) for row in rows]
            if (fault := walk.follow(stored)) is not None:
                return fault
            # Other calls have their turn.
            await asyncio.sleep(0)
        return None

    async def following(
        self, organization_id: str, sequence: int, *, limit: int
    ) -> Sequence[dict[str, Any]]:
        """Events after one, oldest first, with their hashes."""
        events, names = audit_events.c, (*STORED, "hash")
        query = (
            sa.select(*(events[name] for name in names))
            .where(events.organization_id == organization_id, events.sequence > sequence)
            .order_by(events.sequence)
            .limit(limit)
        )
        async with self._database.autocommit() as connection:
            rows = (await connection.execute(query)).all()
        return [dict(zip(names, row, strict=True)) for row in rows]

    async def head(self, organization_id: str) -> tuple[int, bytes] | None:
        """The sequence and the hash of the last event, as the head of the chain says."""
        chains = audit_chains.c
        query = sa.select(chains.sequence, chains.hash).where(chains.id == organization_id)
        async with self._database.autocommit() as connection:
            row = (await connection.execute(query)).first()
        return None if row is None else (row.sequence, row.hash)

    async def hash_of(self, organization_id: str, sequence: int) -> bytes | None:
        """The stored hash of an event; None where there is no such event."""
        events = audit_events.c
        query = sa.select(events.hash).where(
            events.organization_id == organization_id, events.sequence == sequence
        )
        async with self._database.autocommit() as connection:
            return (await connection.execute(query)).scalar_one_or_none()
