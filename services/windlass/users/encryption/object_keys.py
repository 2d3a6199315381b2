"""Keys by which objects of projects are sealed: every query on them, and their opening."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from windlass.core.clock import now_seconds
from windlass.core.db import Database
from windlass.core.errors import FailedPrecondition, NotFound, Unavailable
from windlass.users.encryption.domain import DataKey, NewDataKey
from windlass.users.tables import data_keys, object_keys

# After so long every process has heard that objects of a project are sealed: processes keep for
# one second that they are not, and this counts whole seconds from before the transaction's end.
KNOWN_SECONDS = 3
# Of a project: each may still seal objects, and a new data key seals all of them anew.
MAX_OBJECT_KEYS = 1000


@dataclass(frozen=True, slots=True)
class ObjectSealing:
    """Key by which objects of a project are sealed, and the Unix second from which they are."""

    key_id: str
    usable_at: int

    @property
    def begins_in_seconds(self) -> int:
        """Seconds for which some process may not know yet that objects are sealed."""
        return max(0, self.usable_at - now_seconds())


@dataclass(frozen=True, slots=True)
class SealedObjectKey:
    """A key for objects as it is stored: sealed by a data key."""

    id: str
    data_key_id: str
    envelope: bytes


class ObjectKeyStore:
    """Keys for objects, each sealed by a data key of its project."""

    def __init__(self, database: Database):
        self._database = database

    async def sealing(self, project_id: str) -> ObjectSealing | None:
        """Returns the key that seals now; None where objects of the project are not sealed."""
        query = (
            sa.select(object_keys.c.id, object_keys.c.usable_at)
            .join(data_keys, data_keys.c.object_key_id == object_keys.c.id)
            .where(data_keys.c.project_id == project_id, data_keys.c.retired_at == 0)
        )
        row = await self._first(query)
        return None if row is None else ObjectSealing(row.id, row.usable_at)

    async def get(self, project_id: str, key_id: str) -> tuple[SealedObjectKey, DataKey]:
        """Returns a key of the project and the data key that seals it; raises NotFound."""
        query = (
            sa.select(object_keys.c.envelope, data_keys)
            .join(data_keys, data_keys.c.id == object_keys.c.data_key_id)
            .where(object_keys.c.project_id == project_id, object_keys.c.id == key_id)
        )
        row = await self._first(query)
        if row is None:
            raise NotFound(f"The project has no key {key_id!r} for objects.", param="key_id")
        data_key = DataKey(**{name: getattr(row, name) for name in DataKey.__slots__})
        return SealedObjectKey(key_id, row.id, bytes(row.envelope)), data_key

    async def sealed_otherwise(self, key: DataKey) -> Sequence[SealedObjectKey]:
        """Returns keys of a project that another data key than this one seals."""
        query = (
            sa.select(object_keys)
            .where(object_keys.c.project_id == key.project_id, object_keys.c.data_key_id != key.id)
            .order_by(object_keys.c.id)
        )
        async with self._database.autocommit() as connection:
            rows = await connection.execute(query)
            return [SealedObjectKey(row.id, row.data_key_id, bytes(row.envelope)) for row in rows]

    async def replace(self, former: SealedObjectKey, envelope: bytes, *, key: DataKey) -> None:
        """Stores the same key under another data key, unless it changed meanwhile.

        Raises Unavailable where that data key is not the current one any more.
        """
        statement = (
            object_keys.update()
            .where(
                object_keys.c.id == former.id,
                object_keys.c.data_key_id == former.data_key_id,
            )
            .values(envelope=envelope, data_key_id=key.id)
        )
        current = sa.select(data_keys.c.id).where(
            data_keys.c.id == key.id, data_keys.c.retired_at == 0
        )
        async with self._database.begin() as connection:
            # Held, so that it is the current one until the transaction ends.
            if (await connection.execute(current.with_for_update(read=True))).first() is None:
                raise Unavailable("The project's key is being changed; try again.")
            await connection.execute(statement)

    async def _first(self, query: sa.Select[Any]) -> Any:
        async with self._database.autocommit() as connection:
            return (await connection.execute(query)).first()


async def put_object_key(
    connection: AsyncConnection, new: NewDataKey, *, at_once: bool = False
) -> None:
    """Stores the key for objects that came with a data key.

    A project's first one is used when every process knows of it, of a new project at once.
    Raises FailedPrecondition `too_many_object_keys`.
    """
    now, project_id = now_seconds(), new.key.project_id
    usable_at = now if at_once else now + KNOWN_SECONDS
    there = sa.select(sa.func.min(object_keys.c.usable_at), sa.func.count()).where(
        object_keys.c.project_id == project_id
    )
    known, number = (await connection.execute(there)).one()
    if number >= MAX_OBJECT_KEYS:
        raise FailedPrecondition(
            f"The project's data key was changed {number} times, and each may still seal objects.",
            reason="too_many_object_keys",
        )
    values = {
        "id": new.key.object_key_id,
        "organization_id": new.key.organization_id,
        "project_id": project_id,
        "data_key_id": new.key.id,
        "envelope": new.object_key,
        "created_at": now,
        "usable_at": usable_at if known is None else min(known, usable_at),
    }
    await connection.execute(object_keys.insert().values(values))
