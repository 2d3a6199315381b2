"""Every query on keys that tenants keep elsewhere."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from windlass.bounds import MAX_EXTERNAL_KEYS
from windlass.core.db import Database
from windlass.core.db.paging import by_creation
from windlass.core.errors import FailedPrecondition, InvalidArgument
from windlass.users.encryption.domain import OwnKey, unknown_key
from windlass.users.keys.revocation import take_turn
from windlass.users.tables import data_keys, external_keys

# In one answer, of each key.
SHOWN_PROJECTS = 200
_USED = (
    sa.select(data_keys.c.project_id)
    .where(data_keys.c.external_key_id == external_keys.c.id)
    .distinct()
    .order_by(data_keys.c.project_id)
    .limit(SHOWN_PROJECTS)
    .correlate(external_keys)
)
_PROJECTS = sa.func.array(_USED.scalar_subquery()).label("project_ids")


class ExternalKeyStore:
    """External keys of organizations."""

    def __init__(self, database: Database):
        self._database = database

    async def create(self, key: OwnKey) -> OwnKey:
        """Stores a key; raises InvalidArgument where there are too many."""
        own = external_keys.c.organization_id == key.organization_id
        row = {name: getattr(key, name) for name in OwnKey.__slots__ if name in external_keys.c}
        async with self._database.begin() as connection:
            await take_turn(connection, key.organization_id, of="external keys")
            count = sa.select(sa.func.count()).select_from(external_keys).where(own)
            if (await connection.execute(count)).scalar_one() >= MAX_EXTERNAL_KEYS:
                message = f"There may be {MAX_EXTERNAL_KEYS} external keys."
                raise InvalidArgument(message, param="name")
            await connection.execute(external_keys.insert().values(row))
        return key

    async def get(self, organization_id: str, external_key_id: str) -> OwnKey:
        """Returns one key of the organization; raises NotFound."""
        query = sa.select(external_keys, _PROJECTS).where(
            external_keys.c.id == external_key_id,
            external_keys.c.organization_id == organization_id,
        )
        async with self._database.autocommit() as connection:
            row = (await connection.execute(query)).first()
        if row is None:
            raise unknown_key(external_key_id)
        return _key(row)

    async def list(
        self, organization_id: str, *, oldest_first: bool, after: str, limit: int
    ) -> Sequence[OwnKey]:
        """Keys of the organization, by their creation."""
        own = external_keys.c.organization_id == organization_id
        query = by_creation(
            sa.select(external_keys, _PROJECTS).where(own),
            external_keys.c.created_at,
            external_keys.c.id,
            after=after,
            of=own,
            oldest_first=oldest_first,
        )
        async with self._database.autocommit() as connection:
            return [_key(row) for row in await connection.execute(query.limit(limit))]

    async def delete(self, organization_id: str, external_key_id: str) -> OwnKey:
        """Forgets a key; raises NotFound, and FailedPrecondition `external_key_in_use`."""
        key = await self.get(organization_id, external_key_id)
        wraps = sa.select(data_keys.c.project_id).where(data_keys.c.external_key_id == key.id)
        async with self._database.begin() as connection:
            await hold(connection, organization_id, external_key_id, alone=True)
            if users := sorted(set((await connection.execute(wraps)).scalars())):
                raise FailedPrecondition(
                    f"The external key wraps data keys of {', '.join(users)}. Give these projects "
                    "another key, and wait until their secrets are sealed anew.",
                    reason="external_key_in_use",
                    param="external_key_id",
                )
            await connection.execute(external_keys.delete().where(external_keys.c.id == key.id))
        return key


async def hold(
    connection: AsyncConnection, organization_id: str, external_key_id: str, *, alone: bool = False
) -> None:
    """Keeps a key from its deletion, or `alone` from use, until the transaction ends.

    Raises NotFound.
    """
    query = (
        sa.select(external_keys.c.id)
        .where(
            external_keys.c.id == external_key_id,
            external_keys.c.organization_id == organization_id,
        )
        .with_for_update(read=not alone)
    )
    if (await connection.execute(query)).first() is None:
        raise unknown_key(external_key_id)


def _key(row: Any) -> OwnKey:
    return OwnKey(
        id=row.id,
        organization_id=row.organization_id,
        name=row.name,
        kind=row.kind,
        place=row.place,
        credential=row.credential,
        created_at=row.created_at,
        project_ids=tuple(row.project_ids),
    )
