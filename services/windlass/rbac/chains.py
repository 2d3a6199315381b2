"""Appending to the audit log: each organization's events are a chain of hashes.

The head of a chain is a row, whose lock makes replicas append one after the other. So the chain
has neither fork nor gap, and the head is never beyond its events.
"""

import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY, insert
from sqlalchemy.ext.asyncio import AsyncConnection

from windlass.audit_chain.links import GENESIS, details_digest, link
from windlass.core.db import Database
from windlass.rbac.tables import COLUMNS, EMPTY, audit_chains, audit_events

Event = Mapping[str, Any]


class AuditChains:
    """Appends events to the chains of their organizations."""

    def __init__(self, database: Database):
        self._database = database

    async def append(self, events: Iterable[Event]) -> None:
        """Adds events in the given order; one whose id is there already is left as it is.

        What an event does not say is empty. In one transaction with the heads of the chains.
        """
        given = {event["id"]: EMPTY | dict(event) for event in events}
        if not given:
            return
        async with self._database.begin() as connection:
            heads = await _locked(connection, {one["organization_id"] for one in given.values()})
            known = await _known(connection, list(given))
            rows = [
                heads[event["organization_id"]].linked(event)
                for event in given.values()
                if event["id"] not in known
            ]
            if rows:
                await connection.execute(_insert(rows))
                await connection.execute(_moved(heads.values()))


class _Head:
    """The end of a chain while its row is locked."""

    def __init__(self, organization_id: str, sequence: int, digest: bytes):
        self.id = organization_id
        self.sequence = sequence
        self.hash = digest

    def linked(self, event: Event) -> dict[str, Any]:
        """The row of the next event."""
        self.sequence += 1
        row = {name: event[name] for name in COLUMNS} | {"sequence": self.sequence}
        # So that nobody finds by trying what was erased.
        row["details_salt"] = secrets.token_hex(16) if row["before"] or row["after"] else ""
        row["details_digest"] = details_digest(row)
        self.hash = link(self.hash, row)
        return {**row, "hash": self.hash}


async def _locked(connection: AsyncConnection, organizations: set[str]) -> dict[str, _Head]:
    """The heads, made where there is none, locked until the transaction's end."""
    rows = [{"id": one, "sequence": 0, "hash": GENESIS} for one in sorted(organizations)]
    # Rows are locked in the order given, so that two batches never wait for each other.
    made = insert(audit_chains).values(rows)
    locked = made.on_conflict_do_update(
        index_elements=["id"], set_={"id": made.excluded.id}
    ).returning(audit_chains.c.id, audit_chains.c.sequence, audit_chains.c.hash)
    return {row.id: _Head(*row) for row in await connection.execute(locked)}


async def _known(connection: AsyncConnection, ids: list[str]) -> set[str]:
    given = sa.literal(ids, ARRAY(sa.Text))
    query = sa.select(audit_events.c.id).where(audit_events.c.id == sa.any_(given))
    return set((await connection.execute(query)).scalars())


def _insert(rows: Sequence[Event]) -> sa.Insert:
    """A statement that is the same for any number of rows, as a list of VALUES would not be."""
    columns = list(audit_events.c)
    arrays = [sa.literal([row[c.name] for row in rows], ARRAY(c.type)) for c in columns]
    shaped = [sa.column(column.name, column.type) for column in columns]
    given = sa.func.unnest(*arrays).table_valued(*shaped).render_derived(name="given")
    names = [column.name for column in columns]
    return audit_events.insert().from_select(names, sa.select(*(given.c[name] for name in names)))


def _moved(heads: Iterable[_Head]) -> sa.Insert:
    rows = [{"id": one.id, "sequence": one.sequence, "hash": one.hash} for one in heads]
    moved = insert(audit_chains).values(sorted(rows, key=lambda row: str(row["id"])))
    changed = {"sequence": moved.excluded.sequence, "hash": moved.excluded.hash}
    return moved.on_conflict_do_update(index_elements=["id"], set_=changed)
