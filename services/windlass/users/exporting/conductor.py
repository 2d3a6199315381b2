"""The order of an export: its manifest once all services are done, and its end."""

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from windlass.core import telemetry
from windlass.core.clock import now_seconds
from windlass.core.db import Database
from windlass.core.db.leases import claim, held, no_rows, released
from windlass.core.exporting.archive import room
from windlass.core.exporting.tables import (
    COLLECTING,
    ENDING,
    PENDING,
    READY,
    export_parts,
    export_steps,
    exports,
    prefix_of,
)
from windlass.core.ids import new_id
from windlass.core.killpoints import reach
from windlass.core.objects import ObjectStore
from windlass.users.exporting.domain import TenantExport
from windlass.users.exporting.manifest import NAME, ExportManifest
from windlass.users.exporting.store import export_of

log = telemetry.logger("exporting")
LEASE_SECONDS = 300.0
BATCH = 5


class ExportConductor:
    """Leased work on exports as wholes."""

    def __init__(self, database: Database, objects: ObjectStore, *, keep_seconds: int):
        self._database = database
        self._objects = objects
        self._keep_seconds = keep_seconds
        self.has_none = no_rows(database, exports.c.id != "")

    async def once(self) -> bool:
        """Finishes or ends what is due; returns True if something was."""
        over = exports.c.expires_at <= now_seconds()
        of_this = export_steps.c.export_id == exports.c.id
        waits = sa.exists().where(of_this, export_steps.c.state == PENDING)
        # Somebody may still write a part, until its lease is over.
        written = sa.exists().where(of_this, export_steps.c.lease_until > sa.func.now())
        due = sa.or_(
            sa.and_(exports.c.state == ENDING, ~written),
            sa.and_(exports.c.state != ENDING, over),
            sa.and_(exports.c.state == COLLECTING, ~waits),
        )
        token, rows = await claim(self._database, exports, due, limit=BATCH, seconds=LEASE_SECONDS)
        for row in rows:
            mine = sa.and_(exports.c.id == row.id, held(exports, token))
            if row.state == ENDING:
                await self._remove(export_of(row), mine)
            elif row.expires_at <= now_seconds():
                await self._end(mine)
            else:
                await self._finish(export_of(row), mine)
        return bool(rows)

    async def _finish(self, export: TenantExport, mine: sa.ColumnElement[bool]) -> None:
        manifest = ExportManifest(self._database, export)
        key = prefix_of(export.organization_id, export.id) + new_id("part_")
        stored = await self._objects.put(key, aiter(manifest))
        reach("exports.manifest")
        now = now_seconds()
        values = {
            "state": READY,
            "finished_at": now,
            "expires_at": now + self._keep_seconds,
            "bytes": manifest.room + room(NAME, stored.bytes, export.asked_at),
        }
        part = {
            "export_id": export.id,
            "name": NAME,
            "object_key": key,
            "rows": 0,
            "bytes": stored.bytes,
            "sha256": stored.sha256,
        }
        # Nobody has ended it meanwhile.
        collects = sa.and_(mine, exports.c.state == COLLECTING, exports.c.expires_at > 0)
        async with self._database.begin() as connection:
            done = await connection.execute(
                exports.update().where(collects).values(values | released())
            )
            if done.rowcount:
                await connection.execute(insert(export_parts).values(part))
        reach("exports.ready")
        log.info("export_finished", export=export.id)

    async def _end(self, mine: sa.ColumnElement[bool]) -> None:
        async with self._database.begin() as connection:
            await connection.execute(
                exports.update().where(mine).values(state=ENDING, **released())
            )

    async def _remove(self, export: TenantExport, mine: sa.ColumnElement[bool]) -> None:
        await self._objects.delete_prefix(prefix_of(export.organization_id, export.id))
        reach("exports.removed")
        async with self._database.begin() as connection:
            for table in (export_parts, export_steps):
                gone = table.c.export_id == export.id
                await connection.execute(table.delete().where(gone, sa.exists().where(mine)))
            await connection.execute(exports.delete().where(mine))
        log.info("export_removed", export=export.id)
