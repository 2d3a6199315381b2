"""Tenants' secrets, each sealed by its project's data key: every query on them."""

from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from windlass.core.clock import now_seconds
from windlass.core.db import Database
from windlass.core.errors import NotFound, Unavailable
from windlass.core.rpc import audited
from windlass.users.domain import Secret
from windlass.users.encryption.data_keys import is_current
from windlass.users.encryption.domain import DataKey
from windlass.users.encryption.project_keys import ProjectDataKeys
from windlass.users.tables import data_keys, secrets

# Data keys that a project may get one after the other while something is sealed or opened.
_TRIES = 3


class SecretStore:
    """Every query on secrets."""

    def __init__(self, database: Database, keys: ProjectDataKeys):
        self._database = database
        self._keys = keys

    async def put(self, project_id: str, name: str, value: bytes) -> Secret:
        """Stores or replaces a secret; raises Unavailable `external_key_unavailable`."""
        for _ in range(_TRIES):
            sealing = await self._keys.sealing(project_id)
            sealed = sealing.envelope.seal(value, context=context_of(project_id, name))
            async with self._database.begin() as connection:
                # What a key that was replaced meanwhile has sealed would be left behind.
                if await is_current(connection, project_id, sealing.key):
                    return await self._store(connection, project_id, name, sealed)
        raise _CHANGING

    async def _store(
        self, connection: AsyncConnection, project_id: str, name: str, sealed: bytes
    ) -> Secret:
        at = now_seconds()
        key = {"project_id": project_id, "name": name}
        statement = (
            insert(secrets)
            .values(created_at=at, updated_at=at, envelope=sealed, **key)
            .on_conflict_do_update(
                index_elements=list(key), set_={"envelope": sealed, "updated_at": at}
            )
            .returning(secrets.c.created_at)
        )
        created_at = (await connection.execute(statement)).scalar_one()
        put = Secret(name, project_id, created_at, at)
        audited.change(None, put)
        return put

    async def list(self, project_id: str, *, after: str, limit: int) -> Sequence[Secret]:
        """The project's secrets by name, without values."""
        query = secrets.select().where(secrets.c.project_id == project_id, secrets.c.name > after)
        async with self._database.autocommit() as connection:
            rows = await connection.execute(query.order_by(secrets.c.name).limit(limit))
            return [
                Secret(row.name, row.project_id, row.created_at, row.updated_at) for row in rows
            ]

    async def delete(self, project_id: str, name: str) -> None:
        """Removes a secret; raises NotFound."""
        statement = secrets.delete().where(
            secrets.c.project_id == project_id, secrets.c.name == name
        )
        async with self._database.begin() as connection:
            row = (await connection.execute(statement.returning(secrets))).first()
            if row is None:
                raise NotFound(f"No secret {name!r}.", param="name")
        audited.change(Secret(name, project_id, row.created_at, row.updated_at), None)

    async def find(self, project_id: str, names: Sequence[str]) -> Sequence[str]:
        """Returns the names, of those given, that the project has a secret of."""
        query = sa.select(secrets.c.name).where(
            secrets.c.project_id == project_id, secrets.c.name.in_(names)
        )
        async with self._database.autocommit() as connection:
            return list((await connection.execute(query.order_by(secrets.c.name))).scalars())

    async def reveal(self, project_id: str, name: str) -> bytes:
        """The value, for a service that uses it.

        Raises NotFound, and Unavailable `external_key_unavailable`.
        """
        for _ in range(_TRIES):
            sealed = await self._sealed(project_id, name)
            envelope = await self._keys.opening(project_id, sealed)
            try:
                return envelope.open(sealed, context=context_of(project_id, name))
            except ValueError:
                # Unless it was sealed anew meanwhile, and the key of before is gone.
                if await self._sealed(project_id, name) == sealed:
                    raise
        raise _CHANGING

    async def _sealed(self, project_id: str, name: str) -> bytes:
        query = sa.select(secrets.c.envelope).where(
            secrets.c.project_id == project_id, secrets.c.name == name
        )
        async with self._database.autocommit() as connection:
            envelope = (await connection.execute(query)).scalar_one_or_none()
        if envelope is None:
            raise NotFound(f"No secret {name!r}.", param="name")
        return bytes(envelope)

    async def sealed_otherwise(
        self, project_id: str, mark: bytes, *, after: str, limit: int
    ) -> Sequence[tuple[str, bytes]]:
        """Names and envelopes of secrets that another key than the one of this mark sealed."""
        query = (
            sa.select(secrets.c.name, secrets.c.envelope)
            .where(
                secrets.c.project_id == project_id,
                secrets.c.name > after,
                sa.func.substring(secrets.c.envelope, 1, len(mark)) != mark,
            )
            .order_by(secrets.c.name)
            .limit(limit)
        )
        async with self._database.autocommit() as connection:
            return [(row.name, bytes(row.envelope)) for row in await connection.execute(query)]

    async def projects_sealed_otherwise(self, mark: bytes) -> Sequence[str]:
        """Projects without a data key of which some secret has another mark."""
        has_key = sa.exists().where(data_keys.c.project_id == secrets.c.project_id)
        query = sa.select(secrets.c.project_id).where(
            sa.not_(has_key.correlate(secrets)),
            sa.func.substring(secrets.c.envelope, 1, len(mark)) != mark,
        )
        async with self._database.autocommit() as connection:
            return (await connection.execute(query.distinct())).scalars().all()

    async def replace(
        self, project_id: str, name: str, former: bytes, envelope: bytes, *, key: DataKey | None
    ) -> None:
        """Stores the same value under the current key, unless it changed meanwhile.

        Raises Unavailable where another key than this one seals by now.
        """
        statement = (
            secrets.update()
            .where(
                secrets.c.project_id == project_id,
                secrets.c.name == name,
                secrets.c.envelope == former,
            )
            .values(envelope=envelope)
        )
        async with self._database.begin() as connection:
            # Whoever settles the next key has seen this secret already, and deletes this one.
            if not await is_current(connection, project_id, key):
                raise _CHANGING
            await connection.execute(statement)


def context_of(project_id: str, name: str) -> str:
    """Returns the context that a secret's envelope is bound to."""
    return f"{project_id}/{name}"


_CHANGING = Unavailable("The project's key is being changed; try again.")
