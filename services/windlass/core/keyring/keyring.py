"""The installation's root key: made once, sealed in the database, opened at each start."""

from collections.abc import Callable, Sequence

import sqlalchemy as sa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from sqlalchemy.dialects.postgresql import insert

from windlass.core import telemetry
from windlass.core.clock import now_seconds
from windlass.core.config import Settings
from windlass.core.db import Database, metadata
from windlass.core.keyring.envelope import Envelope
from windlass.core.keyring.root import names, open_root, seal_root
from windlass.core.keyring.seals import SealStore
from windlass.core.keyring.wrapping import KEY_BYTES

log = telemetry.logger("keyring")
shared_secrets = sa.Table(
    "core_shared_secrets",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("sealed", sa.LargeBinary, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
)


class Keyring:
    """Keys that every process of an installation derives from its root key."""

    def __init__(self, database: Database, root: bytes, former: Sequence[bytes]):
        self._database = database
        self._root = root
        # Master keys that sealed tenants' secrets before there was a root key.
        self._former = tuple(former)

    def derive(self, purpose: str) -> bytes:
        """Return 32 bytes that are the same in every process, and tell nothing of other purposes.

        HKDF-SHA256 (RFC 5869).
        """
        derivation = HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=None, info=purpose.encode())
        return derivation.derive(self._root)

    def envelope(self, purpose: str) -> Envelope:
        """Return an envelope for values of one purpose."""
        return Envelope([self.derive(purpose), *self._former])

    async def shared(self, name: str, make: Callable[[], bytes]) -> bytes:
        """Return a secret that all processes share; the first to ask makes it."""
        envelope = self.envelope("shared secrets")
        if not await self._stored(name):
            sealed = envelope.seal(make(), context=name)
            row = {"name": name, "sealed": sealed, "created_at": now_seconds()}
            statement = insert(shared_secrets).values(row).on_conflict_do_nothing()
            async with self._database.begin() as connection:
                await connection.execute(statement)
        return envelope.open(await self._stored(name), context=name)

    async def _stored(self, name: str) -> bytes:
        """Return the sealed secret; empty where there is none yet."""
        query = sa.select(shared_secrets.c.sealed).where(shared_secrets.c.name == name)
        async with self._database.autocommit() as connection:
            return (await connection.execute(query)).scalar_one_or_none() or b""


async def open_keyring(settings: Settings, database: Database) -> Keyring:
    """Open the root key with a configured master key; the first process makes the root key.

    A root key that the first of the configured keys does not seal yet, it seals as well. Raises
    KeyringError when no configured key is this database's, or none can be had.
    """
    opened = await open_root(settings, database)
    first = opened.masters[0]
    if all(seal.master_key_id != first.id for seal in opened.seals):
        try:
            await seal_root(opened, SealStore(database))
        except OSError as error:
            log.warning("root_key_not_sealed", master_key=first.id, reason=str(error))
    return Keyring(database, opened.root, opened.local)


async def check_master_key(settings: Settings, database: Database) -> str:
    """Return the id of the master key that opens the database's root key; it changes nothing.

    Empty where the database has no root key yet. Raises KeyringError as `open_keyring` does.
    """
    if not await SealStore(database).all():
        return ""
    return (await open_root(settings, database)).opened_by


async def sealing_key(database: Database) -> str:
    """Return the ids of the master keys that seal the database's root key; empty without one."""
    return names(await SealStore(database).all())
