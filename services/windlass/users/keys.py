"""Every query on API keys."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from windlass.core.db import Database
from windlass.core.errors import NotFound, PermissionDenied, Unauthenticated
from windlass.users.domain import ApiKey
from windlass.users.store import now, revoke_where
from windlass.users.tables import api_keys, key_changes, organizations, projects

# `last_used_at` is for people; a minute is fine and spares a write per call.
LAST_USED_SECONDS = 60
# How far back a beat looks, so that a change which commits late is still heard of.
CHANGES_SECONDS = 15


@dataclass(frozen=True, slots=True)
class FoundKey:
    """A live key and the scope of the call that presents it."""

    key: ApiKey
    organization_id: str
    project_id: str


def _key(row: Any) -> ApiKey:
    return ApiKey(**{name: getattr(row, name) for name in ApiKey.__slots__})


def unknown_key(key_id: str) -> NotFound:
    """The error of a key that is not there, or not for the caller."""
    return NotFound(f"No API key {key_id!r}.", param="key_id")


class KeyStore:
    """API keys."""

    def __init__(self, database: Database):
        self._database = database

    async def create(self, key: ApiKey, digest: bytes) -> ApiKey:
        """Stores a key by its digest."""
        values = {name: getattr(key, name) for name in ApiKey.__slots__} | {"digest": digest}
        async with self._database.begin() as connection:
            await connection.execute(api_keys.insert().values(values))
        return key

    async def list(
        self, organization_id: str, *, project_id: str, user_id: str, after: str, limit: int
    ) -> Sequence[ApiKey]:
        """Keys of the organization by id, of one project and one holder where given."""
        query = api_keys.select().where(
            api_keys.c.organization_id == organization_id, api_keys.c.id > after
        )
        if project_id:
            query = query.where(api_keys.c.project_id == project_id)
        if user_id:
            query = query.where(api_keys.c.user_id == user_id)
        async with self._database.read() as connection:
            rows = await connection.execute(query.order_by(api_keys.c.id).limit(limit))
            return [_key(row) for row in rows]

    async def get(self, organization_id: str, key_id: str) -> ApiKey:
        """One key of the organization; raises NotFound."""
        query = api_keys.select().where(
            api_keys.c.organization_id == organization_id, api_keys.c.id == key_id
        )
        async with self._database.read() as connection:
            row = (await connection.execute(query)).first()
        if row is None:
            raise unknown_key(key_id)
        return _key(row)

    async def revoke(self, organization_id: str, key_id: str) -> ApiKey:
        """Ends a key; idempotent; raises NotFound."""
        where = sa.and_(api_keys.c.organization_id == organization_id, api_keys.c.id == key_id)
        async with self._database.begin() as connection:
            await revoke_where(connection, where)
        return await self.get(organization_id, key_id)

    async def lookup(
        self, digest: bytes, *, organization_id: str, project_id: str, key_id: str = ""
    ) -> FoundKey:
        """The live key of a digest (or of an id) and the scope that the call asks for.

        Raises Unauthenticated for a key that is unknown, revoked or expired, and
        PermissionDenied for a scope that is not the key's.
        """
        async with self._database.read() as connection:
            which_key = api_keys.c.id == key_id if key_id else api_keys.c.digest == digest
            row = (await connection.execute(api_keys.select().where(which_key))).first()
            if row is None:
                raise Unauthenticated("Incorrect API key provided.")
            key = _key(row)
            if key.revoked_at:
                raise Unauthenticated("This API key has been revoked.")
            if key.expires_at and key.expires_at <= now():
                raise Unauthenticated("This API key has expired.")
            organization = self._organization(key, organization_id)
            live = organizations.select().where(
                organizations.c.id == organization, organizations.c.deleted_at == 0
            )
            if (await connection.execute(live)).first() is None:
                raise Unauthenticated("The organization of this API key is gone.")
            wanted = key.project_id or project_id
            if key.project_id and project_id not in ("", key.project_id):
                raise PermissionDenied(
                    "This API key belongs to another project.", reason="mismatched_project"
                )
            which = projects.c.id == wanted if wanted else projects.c.is_default
            project = (
                await connection.execute(
                    projects.select().where(
                        which,
                        projects.c.organization_id == organization,
                        projects.c.archived_at == 0,
                    )
                )
            ).first()
            if project is None and wanted:
                raise PermissionDenied(
                    f"No live project {wanted!r} in this organization.",
                    reason="mismatched_project",
                )
            if key.last_used_at < now() - LAST_USED_SECONDS:
                await connection.execute(
                    api_keys.update().where(api_keys.c.id == key.id).values(last_used_at=now())
                )
        return FoundKey(key, organization, project.id if project else "")

    @staticmethod
    def _organization(key: ApiKey, asked: str) -> str:
        if not asked or asked == key.organization_id:
            return key.organization_id
        if key.role != "platform_admin":
            raise PermissionDenied(
                "This API key belongs to another organization.", reason="mismatched_organization"
            )
        return asked

    async def recent_changes(self) -> Sequence[tuple[int, str]]:
        """Changes of keys of the last seconds, as (change id, key id)."""
        since = sa.func.now() - sa.func.make_interval(0, 0, 0, 0, 0, 0, CHANGES_SECONDS)
        query = key_changes.select().where(key_changes.c.at > since)
        async with self._database.read() as connection:
            return [(row.id, row.key_id) for row in await connection.execute(query)]

    async def forget_changes(self) -> None:
        """Drops changes that every holder has heard of."""
        old = sa.func.now() - sa.func.make_interval(0, 0, 0, 1)
        async with self._database.begin() as connection:
            await connection.execute(key_changes.delete().where(key_changes.c.at < old))
