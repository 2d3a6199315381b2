"""Every query on exports that callers ask for."""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from windlass.core.clock import now_seconds
from windlass.core.db import Database
from windlass.core.db.paging import newest_first
from windlass.core.exporting.tables import (
    COLLECTING,
    READY,
    export_parts,
    export_steps,
    exports,
    live,
)
from windlass.core.ids import new_id
from windlass.core.leaving.tables import ERASING, erasures
from windlass.users.exporting.domain import (
    ExportPart,
    ServiceExport,
    TenantExport,
    is_collected_still,
    leaves_already,
    unknown_export,
)
from windlass.users.tables import organizations, projects

# Those with something to export; a test compares it with their claims.
SERVICES = (
    "core", "users", "rbac", "files", "models", "jobs", "clusters", "inference", "usage",
    "federation", "tuning",
)  # fmt: skip


def export_of(row: Any) -> TenantExport:
    """The record of a row."""
    names = {one.name for one in fields(TenantExport)} - {"steps"}
    return TenantExport(**{name: getattr(row, name) for name in names})


class ExportStore:
    """Exports of an organization, as callers see them: until they expire."""

    def __init__(self, database: Database, *, keep_seconds: int):
        self._database = database
        self._keep_seconds = keep_seconds

    async def create(self, organization_id: str, user_id: str, *, by: str) -> TenantExport:
        """Begins an export, and ends the one before; answers the one that is still collected.

        Raises FailedPrecondition `being_erased`.
        """
        async with self._database.begin() as connection:
            # An erasure begins under the same lock, so that it sees this export or is seen here.
            lock = sa.select(organizations.c.id).where(organizations.c.id == organization_id)
            await connection.execute(lock.with_for_update())
            erasing = sa.exists().where(
                erasures.c.organization_id == organization_id, erasures.c.state == ERASING
            )
            if await connection.scalar(sa.select(erasing)):
                raise leaves_already()
            same = sa.and_(
                exports.c.organization_id == organization_id, exports.c.user_id == user_id
            )
            query = exports.select().where(same, exports.c.state == COLLECTING)
            found = (await connection.execute(query)).first()
            if found is not None and found.expires_at > now_seconds():
                return export_of(found)
            await connection.execute(
                exports.update().where(same, exports.c.state == READY).values(expires_at=0)
            )
            return await self._insert(connection, organization_id, user_id, by)

    async def _insert(
        self, connection: AsyncConnection, organization_id: str, user_id: str, by: str
    ) -> TenantExport:
        own = sa.select(projects.c.id).where(projects.c.organization_id == organization_id)
        now = now_seconds()
        made = {
            "id": new_id("export_"),
            "organization_id": organization_id,
            "user_id": user_id,
            "project_ids": list((await connection.execute(own)).scalars()),
            "state": COLLECTING,
            "asked_by": by,
            "asked_at": now,
            "expires_at": now + self._keep_seconds,
        }
        row = await connection.execute(exports.insert().values(made).returning(exports))
        steps = [
            {"id": f"{made['id']}/{name}", "export_id": made["id"], "service": name}
            for name in SERVICES
        ]
        await connection.execute(export_steps.insert().values(steps))
        return export_of(row.one())

    async def list(
        self, organization_id: str, subjects: Sequence[str], *, after: str, limit: int
    ) -> Sequence[TenantExport]:
        """Exports of the subjects, newest first."""
        own = sa.and_(
            exports.c.organization_id == organization_id, exports.c.user_id.in_(subjects), live()
        )
        query = newest_first(
            exports.select().where(own), exports.c.asked_at, exports.c.id, after=after, of=own
        )
        async with self._database.autocommit() as connection:
            return [export_of(row) for row in await connection.execute(query.limit(limit))]

    async def get(
        self, organization_id: str, subjects: Sequence[str], export_id: str
    ) -> TenantExport:
        """Returns one with the steps of its services; raises NotFound."""
        query = exports.select().where(
            exports.c.id == export_id,
            exports.c.organization_id == organization_id,
            exports.c.user_id.in_(subjects),
            live(),
        )
        mine = export_steps.c.export_id == export_id
        async with self._database.autocommit() as connection:
            row = (await connection.execute(query)).first()
            if row is None:
                raise unknown_export(export_id)
            found = export_of(row)
            steps = await connection.execute(
                export_steps.select().where(mine).order_by(export_steps.c.id)
            )
            names = [one.name for one in fields(ServiceExport)]
            for step in steps:
                # `rows` of a row is a column of ours.
                values = step._mapping
                found.steps.append(ServiceExport(**{name: values[name] for name in names}))
        return found

    async def ready(
        self, organization_id: str, subjects: Sequence[str], export_id: str
    ) -> TenantExport:
        """Returns one that can be downloaded; raises NotFound, FailedPrecondition `not_ready`."""
        found = await self.get(organization_id, subjects, export_id)
        if found.state != READY:
            raise is_collected_still()
        return found


async def parts_after(
    database: Database, export_id: str, after: str, limit: int
) -> Sequence[ExportPart]:
    """The parts of an export in the order of the archive."""
    names = [one.name for one in fields(ExportPart)]
    query = (
        sa.select(*(export_parts.c[name] for name in names))
        .where(export_parts.c.export_id == export_id, export_parts.c.name > after)
        .order_by(export_parts.c.name)
        .limit(limit)
    )
    async with database.autocommit() as connection:
        return [ExportPart(*row) for row in await connection.execute(query)]
