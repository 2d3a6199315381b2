"""Tenants' secrets: envelope-encrypted at rest, under a master key that can rotate.

Each secret has a data key of its own; the master key only wraps data keys, so
rotation rewrites 60 bytes a secret. The name and project are bound to the
ciphertext: a row copied to another project does not decrypt.
"""

import base64
import hashlib
import os
from collections.abc import Sequence

import sqlalchemy as sa
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from sqlalchemy.dialects.postgresql import insert

from windlass.core.db import Database
from windlass.core.errors import NotFound
from windlass.users.domain import Secret
from windlass.users.store import now
from windlass.users.tables import secrets

_NONCE = 12
_ID = 8
_WRAPPED = 32 + 16 + _NONCE


class Envelope:
    """Seals values under the first of some master keys, opens under any of them."""

    def __init__(self, master_keys: Sequence[bytes]):
        self._masters = {hashlib.sha256(key).digest()[:_ID]: AESGCM(key) for key in master_keys}
        self._primary = hashlib.sha256(master_keys[0]).digest()[:_ID]

    def seal(self, value: bytes, *, context: str) -> bytes:
        """The value as stored: master key id, wrapped data key, ciphertext."""
        data_key = AESGCM.generate_key(256)
        return self._wrap(data_key, context) + _encrypt(AESGCM(data_key), value, context)

    def open(self, envelope: bytes, *, context: str) -> bytes:
        """The value; raises ValueError when no master key fits or it was tampered with."""
        data_key = self._unwrap(envelope, context)
        return _decrypt(AESGCM(data_key), envelope[_ID + _WRAPPED :], context)

    def rewrap(self, envelope: bytes, *, context: str) -> bytes:
        """The same value with its data key wrapped by the primary master key."""
        data_key = self._unwrap(envelope, context)
        return self._wrap(data_key, context) + envelope[_ID + _WRAPPED :]

    def is_current(self, envelope: bytes) -> bool:
        """Whether the primary master key wraps it already."""
        return envelope[:_ID] == self._primary

    def _wrap(self, data_key: bytes, context: str) -> bytes:
        return self._primary + _encrypt(self._masters[self._primary], data_key, context)

    def _unwrap(self, envelope: bytes, context: str) -> bytes:
        master = self._masters.get(envelope[:_ID])
        if master is None:
            raise ValueError("no master key opens this secret")
        return _decrypt(master, envelope[_ID : _ID + _WRAPPED], context)


def _encrypt(cipher: AESGCM, value: bytes, context: str) -> bytes:
    nonce = os.urandom(_NONCE)
    return nonce + cipher.encrypt(nonce, value, context.encode())


def _decrypt(cipher: AESGCM, sealed: bytes, context: str) -> bytes:
    try:
        return cipher.decrypt(sealed[:_NONCE], sealed[_NONCE:], context.encode())
    except InvalidTag as error:
        raise ValueError("the secret does not decrypt") from error


def parse_master_keys(text: str) -> list[bytes]:
    """Master keys from `auth.secrets_key`: base64 of 32 bytes each, comma-separated, newest first.

    Raises ValueError.
    """
    keys = [base64.b64decode(part.strip(), validate=True) for part in text.split(",")]
    if any(len(key) != 32 for key in keys):
        raise ValueError("auth.secrets_key must be base64 of 32 bytes")
    return keys


class SecretStore:
    """Every query on secrets."""

    def __init__(self, database: Database, envelope: Envelope):
        self._database = database
        self._envelope = envelope

    async def put(self, project_id: str, name: str, value: bytes) -> Secret:
        """Stores or replaces a secret."""
        sealed = self._envelope.seal(value, context=f"{project_id}/{name}")
        at = now()
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

    async def list(self, project_id: str) -> Sequence[Secret]:
        """The project's secrets by name, without values."""
        query = secrets.select().where(secrets.c.project_id == project_id)
        async with self._database.read() as connection:
            rows = await connection.execute(query.order_by(secrets.c.name))
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
        """Those of some names that the project has a secret of."""
        query = sa.select(secrets.c.name).where(
            secrets.c.project_id == project_id, secrets.c.name.in_(names)
        )
        async with self._database.read() as connection:
            return list((await connection.execute(query.order_by(secrets.c.name))).scalars())

    async def reveal(self, project_id: str, name: str) -> bytes:
        """The value, for a service that uses it; raises NotFound."""
        query = secrets.select().where(secrets.c.project_id == project_id, secrets.c.name == name)
        async with self._database.read() as connection:
            row = (await connection.execute(query)).first()
        if row is None:
            raise NotFound(f"No secret {name!r}.", param="name")
        return self._envelope.open(row.envelope, context=f"{project_id}/{name}")

    async def rewrap_all(self) -> int:
        """Wraps every data key by the primary master key; answers how many changed."""
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
