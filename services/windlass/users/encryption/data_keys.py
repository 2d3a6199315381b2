"""Every query on projects' data keys."""

from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from windlass.core.clock import now_seconds
from windlass.core.db import Database
from windlass.users.encryption.domain import DataKey, NewDataKey
from windlass.users.encryption.external_keys import hold
from windlass.users.encryption.object_keys import put_object_key
from windlass.users.tables import data_keys, projects

_CURRENT = data_keys.c.retired_at == 0


class DataKeyStore:
    """Data keys, of which each project has one that is current."""

    def __init__(self, database: Database):
        self._database = database

    async def current(self, project_id: str) -> DataKey | None:
        """Returns the key that seals now; None where the project never had one of its own."""
        return await self._find(data_keys.c.project_id == project_id, _CURRENT)

    async def of_mark(self, project_id: str, mark: bytes) -> DataKey | None:
        """Returns the key that sealed what begins so; None where none of the project did."""
        return await self._find(data_keys.c.project_id == project_id, data_keys.c.mark == mark)

    async def replace(self, new: NewDataKey) -> None:
        """Makes a key the current one of its project; the one before waits for its end.

        Raises NotFound where its external key is not there any more.
        """
        async with self._database.begin() as connection:
            await put_current(connection, new)

    async def _find(self, *where: sa.ColumnElement[bool]) -> DataKey | None:
        async with self._database.autocommit() as connection:
            row = (await connection.execute(data_keys.select().where(*where).limit(1))).first()
        return None if row is None else data_key(row)


async def put_current(
    connection: AsyncConnection, new: NewDataKey, *, of_new_project: bool = False
) -> None:
    """Makes a key the current one of its project; raises NotFound as `hold`."""
    key = new.key
    if key.external_key_id:
        await hold(connection, key.organization_id, key.external_key_id)
    # The project's row makes two changes take turns, and waits for who seals, see `is_current`.
    project = projects.c.id == key.project_id
    values = {"external_key_id": key.external_key_id}
    await connection.execute(projects.update().where(project).values(values))
    await connection.execute(
        data_keys.update()
        .where(data_keys.c.project_id == key.project_id, _CURRENT)
        .values(retired_at=now_seconds())
    )
    await connection.execute(data_keys.insert().values(_row(key)))
    await put_object_key(connection, new, at_once=of_new_project)


async def is_current(connection: AsyncConnection, project_id: str, key: DataKey | None) -> bool:
    """Tells whether a key, or none, seals now, and keeps it so until the transaction ends."""
    project = sa.select(projects.c.id).where(projects.c.id == project_id)
    await connection.execute(project.with_for_update(read=True))
    query = sa.select(data_keys.c.id).where(data_keys.c.project_id == project_id, _CURRENT)
    found = (await connection.execute(query)).scalar_one_or_none()
    return found == (key.id if key else None)


def data_key(row: Any) -> DataKey:
    """A row as what it is."""
    return DataKey(**{name: getattr(row, name) for name in DataKey.__slots__})


def _row(key: DataKey) -> dict[str, Any]:
    return {
        **{name: getattr(key, name) for name in DataKey.__slots__},
        "created_at": now_seconds(),
    }
