"""Grants: the use of what a job made by other projects of its organization."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from windlass.core.clock import now_seconds
from windlass.core.db import Database
from windlass.core.errors import NotFound
from windlass.core.ids import new_id
from windlass.core.rpc import audited
from windlass.models.domain import Kind, ModelGrant, Version, VersionState
from windlass.models.revisions import next_revision
from windlass.models.store import to_version
from windlass.models.tables import models, versions

_LIVE = sa.and_(~models.c.deleted, models.c.grant_id != "")


class GrantStore:
    """Names that projects were given for versions of others."""

    def __init__(self, database: Database):
        self._database = database

    async def grantable(self, organization_id: str, name: str) -> Version:
        """A version that a job of the organization made, in whichever project; raises NotFound."""
        query = (
            sa.select(versions)
            .join(models, models.c.version_id == versions.c.id)
            .where(
                models.c.name == name,
                ~models.c.deleted,
                models.c.grant_id == "",
                versions.c.organization_id == organization_id,
                versions.c.project_id != "",
                versions.c.kind.not_in([Kind.BASE, Kind.ADOPTED]),
                versions.c.state == VersionState.READY,
            )
        )
        async with self._database.autocommit() as connection:
            row = (await connection.execute(query)).first()
        if row is None:
            raise no_model(name)
        return to_version(row)

    async def create(self, version: Version, project_ids: Sequence[str]) -> list[ModelGrant]:
        """Gives each project the name; one that has it already keeps its grant.

        Raises NotFound when the version was deleted meanwhile.
        """
        async with self._database.begin() as connection:
            await next_revision(connection)
            ready = versions.select().where(
                versions.c.id == version.id, versions.c.state == VersionState.READY
            )
            if (await connection.execute(ready)).first() is None:
                raise no_model(version.name)
            for project_id in project_ids:
                values: dict[str, Any] = {
                    "version_id": version.id,
                    "deleted": False,
                    "revision": await next_revision(connection),
                    "grant_id": new_id("cp_"),
                    "granted_at": now_seconds(),
                    "created_at": version.created_at,
                }
                await connection.execute(
                    insert(models)
                    .values(project_id=project_id, name=version.name, **values)
                    .on_conflict_do_update(
                        index_elements=["project_id", "name"],
                        set_=values,
                        where=models.c.deleted,
                    )
                )
            query = _granted(version).where(models.c.project_id.in_(project_ids))
            rows = {row.project_id: _grant(row) for row in await connection.execute(query)}
        for made in rows.values():
            audited.change(None, _told(version, made), resource=made.id)
        return [rows[project_id] for project_id in project_ids if project_id in rows]

    async def list(
        self, version: Version, *, after: str, limit: int, ascending: bool, project_id: str
    ) -> Sequence[ModelGrant]:
        """Live grants in order of their making, past `after`; raises NotFound for an unknown."""
        order = models.c.revision
        query = _granted(version)
        if project_id:
            query = query.where(models.c.project_id == project_id)
        async with self._database.autocommit() as connection:
            if after:
                cursor = _granted(version).where(models.c.grant_id == after)
                found = (await connection.execute(cursor)).first()
                if found is None:
                    raise _unknown(after, "after")
                query = query.where(order > found.revision if ascending else order < found.revision)
            query = query.order_by(order if ascending else order.desc()).limit(limit)
            return [_grant(row) for row in await connection.execute(query)]

    async def delete(self, version: Version, grant_id: str) -> None:
        """Takes a name away again; raises NotFound for one that is not there."""
        async with self._database.begin() as connection:
            revision = await next_revision(connection)
            done = await connection.execute(
                models.update()
                .where(_LIVE, models.c.version_id == version.id, models.c.grant_id == grant_id)
                .values(deleted=True, revision=revision)
                .returning(models)
            )
            if (row := done.first()) is None:
                raise _unknown(grant_id, "permission_id")
        audited.change(_told(version, _grant(row)), None)

    async def exist(self, version: Version) -> bool:
        """Returns True if some other project may use the version."""
        query = sa.select(sa.exists().where(_LIVE, models.c.version_id == version.id))
        async with self._database.autocommit() as connection:
            return bool((await connection.execute(query)).scalar_one())


def no_model(name: str) -> NotFound:
    """The error of a name that no job of the organization made."""
    return NotFound(
        f"The organization has no fine-tuned model {name[:256]!r}.",
        reason="model_not_found",
        param="fine_tuned_model_checkpoint",
    )


def _granted(version: Version) -> sa.Select[Any]:
    return sa.select(models).where(_LIVE, models.c.version_id == version.id)


def _grant(row: Any) -> ModelGrant:
    return ModelGrant(row.grant_id, row.project_id, row.granted_at)


def _told(version: Version, grant: ModelGrant) -> dict[str, str]:
    """A grant as the audit log has it."""
    return {"id": grant.id, "project_id": grant.project_id, "model": version.name}


def _unknown(grant_id: str, param: str) -> NotFound:
    return NotFound(f"No such permission: {grant_id[:64]!r}.", param=param)
