"""Every query on imports and on what is to be removed."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from windlass.core.clock import now_seconds
from windlass.core.db import Database
from windlass.core.db.leases import claim, held, no_rows, released
from windlass.core.errors import FailedPrecondition, NotFound
from windlass.core.quotas import Quota, Quotas, count_stored
from windlass.core.rpc.auth import Principal
from windlass.models.domain import Import, Version, VersionState, version_prefix
from windlass.models.manifest import Manifest
from windlass.models.revisions import next_revision
from windlass.models.store import overlapping, point, to_version, values_of
from windlass.models.tables import imports, versions

SWEEP_LEASE_SECONDS = 60.0
_ENDING = versions.c.state.in_([VersionState.DELETING, VersionState.REMOVING])


def _to_import(row: Any) -> Import:
    values = {name: getattr(row, name) for name in Import.__slots__}
    prefix = row.object_prefix or version_prefix(row.version_id)
    return Import(
        **values | {"manifest": Manifest.from_json(row.manifest), "object_prefix": prefix}
    )


class ImportStore:
    """Imports, from promise to version."""

    def __init__(self, database: Database, quotas: Quotas):
        self._database = database
        self._quotas = quotas

    async def create(self, import_: Import) -> None:
        """Stores a promise; raises what quotas raise."""
        values = {name: getattr(import_, name) for name in Import.__slots__}
        values["manifest"] = import_.manifest.to_json()
        async with self._database.begin() as connection:
            scope = (import_.organization_id, import_.project_id)
            may = await self._quotas.hold(connection, Quota.UPLOADS, *scope)
            ours = imports.c.project_id == import_.project_id
            count = sa.select(sa.func.count(), sa.func.count().filter(ours)).where(
                imports.c.organization_id == import_.organization_id, imports.c.state == "open"
            )
            everyone, own = (await connection.execute(count)).one()
            may.require(organization=everyone + 1, project=own + 1)
            await self._quotas.require_room(connection, *scope, import_.manifest.size)
            await connection.execute(imports.insert().values(values))

    async def get(self, principal: Principal, import_id: str) -> Import:
        """An import of the caller's project; raises NotFound, FailedPrecondition once expired."""
        query = imports.select().where(
            imports.c.id == import_id,
            imports.c.organization_id == principal.organization_id,
            imports.c.project_id == principal.project_id,
        )
        async with self._database.autocommit() as connection:
            row = (await connection.execute(query)).first()
        if row is None:
            raise NotFound(f"No such import: {import_id[:64]!r}.", param="import_id")
        found = _to_import(row)
        if found.state == "expired" or (found.state == "open" and found.expires_at < now_seconds()):
            raise _expired()
        return found

    async def complete(self, import_: Import, version: Version) -> None:
        """Makes the upload a version under its name, once.

        Raises FailedPrecondition when it expired meanwhile, AlreadyExists when the
        name was taken meanwhile, PermissionDenied `quota_exceeded`.
        """
        async with self._database.begin() as connection:
            revision = await next_revision(connection)
            query = imports.select().where(imports.c.id == import_.id).with_for_update()
            state = (await connection.execute(query)).one().state
            if state == "complete":
                return
            if state != "open":
                raise _expired()
            await connection.execute(versions.insert().values(values_of(version)))
            await point(connection, version, revision)
            await connection.execute(
                imports.update().where(imports.c.id == import_.id).values(state="complete")
            )
            size = version.manifest.size
            await self._quotas.store(connection, version.organization_id, version.project_id, size)

    async def claim_expired(self) -> tuple[str, Sequence[Import]]:
        """Ends imports whose time is over and leases them for removal."""
        async with self._database.begin() as connection:
            await connection.execute(
                imports.update()
                .where(imports.c.state == "open", imports.c.expires_at < now_seconds())
                .values(state="expired")
            )
        token, rows = await claim(
            self._database,
            imports,
            imports.c.state == "expired",
            limit=4,
            seconds=SWEEP_LEASE_SECONDS,
        )
        return token, [_to_import(row) for row in rows]

    async def forget(self, import_: Import, token: str) -> None:
        """Drops the row of an import whose objects are gone."""
        async with self._database.begin() as connection:
            await connection.execute(
                imports.delete().where(imports.c.id == import_.id, held(imports, token))
            )


class RemovalStore:
    """Versions without a name, until their artifacts are gone."""

    def __init__(self, database: Database):
        self._database = database
        # No version is to be removed, and no import may expire.
        self.has_none = no_rows(database, _ENDING, imports.c.state.in_(["open", "expired"]))

    async def claim(self) -> tuple[str, Sequence[Version]]:
        """Leases versions to remove; one that cannot go yet is offered again a lease later."""
        token, rows = await claim(
            self._database, versions, _ENDING, limit=4, seconds=SWEEP_LEASE_SECONDS
        )
        return token, [to_version(row) for row in rows]

    async def begin(self, version: Version, token: str) -> bool:
        """Closes the folder to newcomers; false when another version still uses it.

        In that case this version is done with, and the last user removes the folder.
        """
        async with self._database.begin() as connection:
            # Orders this with `register`, which may add a user of the folder.
            await next_revision(connection)
            query = sa.select(sa.literal(1)).where(
                versions.c.id != version.id,
                versions.c.state.in_([VersionState.READY, VersionState.DELETING]),
                overlapping(version.object_prefix),
            )
            shared = (await connection.execute(query)).first() is not None
            if shared:
                done = {"state": VersionState.REMOVED, "object_prefix": "", **released()}
                await self._end(connection, version, token, done)
                return False
            removing = {"state": VersionState.REMOVING}
            return await self._set(connection, version, token, removing)

    async def finish(self, version: Version, token: str) -> None:
        """Notes that the artifacts are gone."""
        async with self._database.begin() as connection:
            done = {"state": VersionState.REMOVED, **released()}
            await self._end(connection, version, token, done)

    async def _end(
        self, connection: AsyncConnection, version: Version, token: str, values: dict[str, Any]
    ) -> None:
        if await self._set(connection, version, token, values):
            scope = (version.organization_id, version.project_id)
            await count_stored(connection, *scope, -version.manifest.size)

    @staticmethod
    async def _set(
        connection: AsyncConnection, version: Version, token: str, values: dict[str, Any]
    ) -> bool:
        result = await connection.execute(
            versions.update()
            .where(versions.c.id == version.id, held(versions, token))
            .values(values)
        )
        return bool(result.rowcount)


def _expired() -> FailedPrecondition:
    return FailedPrecondition("The import has expired; start again.", reason="import_expired")
