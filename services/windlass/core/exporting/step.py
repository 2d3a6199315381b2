"""One service's step of an export: its lease, and the parts that it has written."""

import time
from collections.abc import AsyncIterator
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from windlass.core.clock import now_seconds
from windlass.core.db import Database
from windlass.core.db.leases import held, released
from windlass.core.exporting.tables import (
    collects,
    export_parts,
    export_steps,
    exports,
    prefix_of,
    scope_of,
)
from windlass.core.ids import new_id
from windlass.core.leaving.claims import Scope
from windlass.core.objects import ObjectStore, StoredObject

LEASE_SECONDS = 120.0
RENEWED_AFTER = 20.0
_MESSAGE_LENGTH = 500


class ExportLeaseLost(Exception):
    """Another process goes on with the step, or the export is over."""


class ExportStep:
    """A step whose lease this process holds; each change renews it, and raises ExportLeaseLost."""

    def __init__(self, database: Database, objects: ObjectStore, row: sa.Row[Any], token: str):
        self._database = database
        self._objects = objects
        self.row = row
        # Objects that nothing opens.
        self.left_out = 0
        self._renewed = time.monotonic()
        self._held = sa.and_(export_steps.c.id == row.id, held(export_steps, token))
        self._mine = sa.and_(self._held, collects(export_steps.c.export_id))

    async def scope(self) -> Scope:
        """Returns what the export is of; raises ExportLeaseLost once it is over."""
        query = exports.select().where(exports.c.id == self.row.export_id)
        async with self._database.autocommit() as connection:
            row = (await connection.execute(query)).first()
        if row is None:
            raise ExportLeaseLost
        return scope_of(row)

    async def has(self, name: str) -> bool:
        """Returns whether a part is written already, by this process or by one that is gone."""
        this = [export_parts.c.export_id == self.row.export_id, export_parts.c.name == name]
        return await self._database.ask(sa.exists().where(*this))

    async def write(
        self, scope: Scope, chunks: AsyncIterator[bytes], *, project_id: str = ""
    ) -> StoredObject:
        """Stores a part, under a key that no other process writes to.

        What is a project's is sealed as all of the project's is.
        """
        folder = prefix_of(scope.organization_id, self.row.export_id) + self.row.service
        name = new_id("part_")
        key = f"{folder}/{project_id}/{name}" if project_id else f"{folder}/{name}"
        return await self._objects.put(key, self._renewing(chunks))

    async def record(
        self, name: str, stored: StoredObject, *, table: str = "", rows: int = 0
    ) -> None:
        """Counts a part that is stored; removes it if it came too late."""
        part = {
            "export_id": self.row.export_id,
            "name": name,
            "object_key": stored.key,
            "rows": rows,
            "bytes": stored.bytes,
            "sha256": stored.sha256,
        }
        counts: dict[str, Any] = {"bytes": export_steps.c.bytes + stored.bytes}
        if table:
            counted = sa.func.jsonb_build_object(sa.cast(table, sa.Text), rows)
            counts["rows"] = export_steps.c.rows.concat(counted)
        else:
            counts["objects"] = export_steps.c.objects + 1
        try:
            async with self._database.begin() as connection:
                await self._write(connection, counts)
                await connection.execute(insert(export_parts).values(part))
        except ExportLeaseLost:
            await self._objects.delete(stored.key)
            raise

    async def update(self, **values: Any) -> None:
        """Changes the step."""
        async with self._database.begin() as connection:
            await self._write(connection, values)

    async def keep(self) -> None:
        """Renews the lease, once in a while."""
        if time.monotonic() - self._renewed > RENEWED_AFTER:
            await self.update()

    def told(self) -> str:
        """Returns what is to be said of a step that is done; empty for nothing."""
        if not self.left_out:
            return ""
        return f"{self.left_out} objects are left out: the key that seals them opens none of them"

    async def let_go(self) -> None:
        """Gives up the lease, if it is still this process's: it writes nothing any more."""
        async with self._database.begin() as connection:
            await connection.execute(export_steps.update().where(self._held).values(**released()))

    async def rest(self, message: str, *, seconds: int) -> None:
        """Gives the step back for a while, after a failure."""
        await self.update(
            message=message[:_MESSAGE_LENGTH],
            not_before=now_seconds() + seconds,
            tries=self.row.tries + 1,
            **released(),
        )

    async def _renewing(self, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        async for chunk in chunks:
            await self.keep()
            yield chunk

    async def _write(self, connection: AsyncConnection, values: dict[str, Any]) -> None:
        until = sa.func.now() + sa.func.make_interval(0, 0, 0, 0, 0, 0, LEASE_SECONDS)
        statement = export_steps.update().where(self._mine).values({"lease_until": until} | values)
        if (await connection.execute(statement)).rowcount != 1:
            raise ExportLeaseLost
        self._renewed = time.monotonic()
