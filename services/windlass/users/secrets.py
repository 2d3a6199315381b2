"""Tenants' secrets, sealed at rest: every query on them."""

from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from windlass.core.clock import now_seconds
from windlass.core.db import Database
from windlass.core.errors import NotFound
from windlass.core.keyring import Envelope
from windlass.users.domain import Secret
from windlass.users.tables import secrets


class SecretStore:
    """Every query on secrets."""

    def __init__(self, database: Database, envelope: Envelope):
        self._database = database
        self._envelope = envelope

    async def put(self, project_id: str, name: str, value: bytes) -> Secret:
        """Stores or replaces a secret."""
        sealed = self._envelope.seal(value, context=f"{project_id}/{name}")
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
        async with self._database.begin() as connection:
            created_at = (await connection.execute(statement)).scalar_one()
        return Secret(name, project_id, created_at, at)

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
            result = await connection.execute(statement.returning(secrets.c.name))
            if result.first() is None:
                raise NotFound(f"No secret {name!r}.", param="name")

    async def find(self, project_id: str, names: Sequence[str]) -> Sequence[str]:
        """Returns the names, of those given, that the project has a secret of."""
        query = sa.select(secrets.c.name).where(
            secrets.c.project_id == project_id, secrets.c.name.in_(names)
        )
        async with self._database.autocommit() as connection:
            return list((await connection.execute(query.order_by(secrets.c.name))).scalars())

    async def reveal(self, project_id: str, name: str) -> bytes:
        """The value, for a service that uses it; raises NotFound."""
        query = secrets.select().where(secrets.c.project_id == project_id, secrets.c.name == name)
        async with self._database.autocommit() as connection:
            row = (await connection.execute(query)).first()
        if row is None:
            raise NotFound(f"No secret {name!r}.", param="name")
        return self._envelope.open(row.envelope, context=f"{project_id}/{name}")

    async def rewrap_all(self) -> int:
        """Wrap every data key by the primary key; return how many changed."""
        async with self._database.begin() as connection:
            rows = (await connection.execute(secrets.select().with_for_update())).all()
            stale = [row for row in rows if not self._envelope.is_current(row.envelope)]
            for row in stale:
                sealed = self._envelope.rewrap(row.envelope, context=f"{row.project_id}/{row.name}")
                await connection.execute(
                    secrets.update()
                    .where(secrets.c.project_id == row.project_id, secrets.c.name == row.name)
                    .values(envelope=sealed)
                )
        return len(stale)
