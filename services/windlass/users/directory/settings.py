"""Every query on the settings of directories."""

from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from windlass.core.clock import now_seconds
from windlass.core.db import Database
from windlass.core.errors import PermissionDenied
from windlass.users.tables import directories, groups, people

_SETTINGS = sa.select(directories.c.role, directories.c.created_at, directories.c.updated_at).where(
    directories.c.id == sa.bindparam("id")
)


@dataclass(frozen=True, slots=True)
class DirectorySettings:
    """Settings of an organization's directory: what it gives to whom it provisions."""

    # Empty: no membership.
    role: str
    created_at: int
    updated_at: int


class DirectoryStore:
    """Settings of directories by organization."""

    def __init__(self, database: Database):
        self._database = database

    async def get(self, organization_id: str) -> DirectorySettings | None:
        """The organization's; None where no directory provisions it."""
        async with self._database.autocommit() as connection:
            return await _settings(connection, organization_id)

    async def put(self, organization_id: str, role: str) -> DirectorySettings:
        """Lets a directory provision the organization, or changes what it gives."""
        now = now_seconds()
        statement = (
            insert(directories)
            .values(id=organization_id, role=role, created_at=now, updated_at=now)
            .on_conflict_do_update(index_elements=["id"], set_={"role": role, "updated_at": now})
            .returning(directories.c.role, directories.c.created_at, directories.c.updated_at)
        )
        async with self._database.begin() as connection:
            return DirectorySettings(*(await connection.execute(statement)).one())

    async def delete(self, organization_id: str) -> None:
        """Ends it; its people and groups are the organization's own from then on."""
        own = directories.c.id == organization_id
        async with self._database.begin() as connection:
            await connection.execute(directories.delete().where(own))
            for table in (people, groups):
                await connection.execute(
                    table.update()
                    .where(table.c.organization_id == organization_id, table.c.managed_at > 0)
                    .values(managed_at=0, external_id="", version=table.c.version + 1)
                )


async def require_directory(connection: AsyncConnection, organization_id: str) -> DirectorySettings:
    """The organization's settings.

    Raises PermissionDenied where no directory provisions it.
    """
    found = await _settings(connection, organization_id)
    if found is None:
        raise disabled()
    return found


def disabled() -> PermissionDenied:
    """The refusal where no directory provisions an organization."""
    return PermissionDenied(
        "No directory provisions this organization. An owner allows it with `windlass directory "
        "enable`.",
        reason="directory_disabled",
    )


async def _settings(connection: AsyncConnection, organization_id: str) -> DirectorySettings | None:
    row = (await connection.execute(_SETTINGS, {"id": organization_id})).first()
    return DirectorySettings(*row) if row is not None else None
