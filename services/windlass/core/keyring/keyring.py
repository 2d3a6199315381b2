"""The installation's root key: made once, sealed in the database, opened at each start."""

import secrets
from collections.abc import Callable, Sequence
from pathlib import Path

import sqlalchemy as sa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from sqlalchemy.dialects.postgresql import insert

from windlass.core.clock import now_seconds
from windlass.core.config import MasterKeySection, Settings
from windlass.core.db import Database, metadata
from windlass.core.keyring.envelope import Envelope
from windlass.core.keyring.files import private_key_file
from windlass.core.keyring.master import (
    KEY_BYTES,
    LocalMasterKey,
    MasterKey,
    parse_file,
    parse_keys,
)
from windlass.core.keyring.vault import VaultMasterKey

root_keys = sa.Table(
    "core_root_keys",
    metadata,
    # Always 1: an installation has one root key.
    sa.Column("id", sa.SmallInteger, sa.CheckConstraint("id = 1", name="one"), primary_key=True),
    sa.Column("wrapped", sa.Text, nullable=False),
    sa.Column("master_key_id", sa.Text, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
)
shared_secrets = sa.Table(
    "core_shared_secrets",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("sealed", sa.LargeBinary, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
)


MASTER_KEY_FILE = "master.key"
_SAME_KEY = (
    "give every process of an installation the same master_key.key, master_key.file or "
    "master_key.vault"
)


class KeyringError(Exception):
    """The installation's keys cannot be opened; the message says what to change."""


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
    """Open the root key with the configured master key; the first process makes the root key.

    A root key that an older master key of this process sealed is sealed anew by the first.
    Raises KeyringError when the master key is not this database's, or cannot be had.
    """
    row = await _row(database)
    try:
        masters, former = _masters(settings.master_key, settings.data_dir, sealed_by=row and row[1])
        if row is None:
            await _make(database, masters[0])
            row = await _row(database)
        if row is None:
            raise KeyringError("the database did not store the root key: is it read-only?")
        wrapped, sealed_by = row
        root = await _unwrap(masters, wrapped, sealed_by)
        if sealed_by != masters[0].id:
            await _seal_anew(database, masters[0], root, wrapped)
    except OSError as error:
        raise KeyringError(f"the master key cannot be used: {error}") from error
    return Keyring(database, root, former)


def _masters(
    settings: MasterKeySection, data_dir: Path, *, sealed_by: str | None
) -> tuple[list[MasterKey], tuple[bytes, ...]]:
    """Return the master keys, the one that seals first, and the bytes of the local ones."""
    masters: list[MasterKey] = []
    if settings.vault.address:
        masters.append(VaultMasterKey(settings.vault))
    try:
        if text := settings.key.get_secret_value():
            local = LocalMasterKey(parse_keys(text))
        elif settings.file is not None:
            local = LocalMasterKey(parse_file(settings.file.read_bytes()))
        elif masters:
            return masters, ()
        else:
            local = LocalMasterKey([_own_key(data_dir / "keys", sealed_by)])
    except (ValueError, OSError) as error:
        raise KeyringError(f"the master key cannot be read: {error}") from error
    return [*masters, local], local.keys


def _own_key(folder: Path, sealed_by: str | None) -> bytes:
    """Return the key of the data folder; an older release called its file secrets.key.

    It is made only where the database has no root key yet: another could open nothing.
    """
    file, former = folder / MASTER_KEY_FILE, folder / "secrets.key"
    if former.exists() and not file.exists():
        former.rename(file)
    if sealed_by is not None and not file.exists():
        raise KeyringError(
            f"{file.resolve()} does not exist, and the database's root key is sealed by a master "
            f"key ({sealed_by}): put the file back from a backup, or {_SAME_KEY}"
        )
    return private_key_file(file, length=KEY_BYTES)


async def check_master_key(settings: Settings, database: Database) -> str:
    """Return the id of the master key, which opens the database's root key; it changes nothing.

    Empty where the database has no root key yet. Raises KeyringError as `open_keyring` does.
    """
    row = await _row(database)
    if row is None:
        return ""
    try:
        masters, _ = _masters(settings.master_key, settings.data_dir, sealed_by=row[1])
        await _unwrap(masters, *row)
    except OSError as error:
        raise KeyringError(f"the master key cannot be used: {error}") from error
    return masters[0].id


async def sealing_key(database: Database) -> str:
    """Return the id of the master key that seals the database's root key; empty without one."""
    row = await _row(database)
    return row[1] if row else ""


async def _unwrap(masters: Sequence[MasterKey], wrapped: str, sealed_by: str) -> bytes:
    for master in masters:
        try:
            return await master.unwrap(wrapped)
        except ValueError:
            continue
    raise KeyringError(
        f"this process's master key ({masters[0].id}) is not the one of this database "
        f"({sealed_by}): {_SAME_KEY}"
    )


async def _row(database: Database) -> tuple[str, str] | None:
    """Return the root key as it is wrapped, and the id of the master key that wrapped it."""
    query = sa.select(root_keys.c.wrapped, root_keys.c.master_key_id)
    async with database.autocommit() as connection:
        row = (await connection.execute(query)).first()
    return None if row is None else (row.wrapped, row.master_key_id)


async def _make(database: Database, master: MasterKey) -> None:
    # Sealed before the transaction: a key service may be asked over the network.
    wrapped = await master.wrap(secrets.token_bytes(KEY_BYTES))
    row = {
        "id": 1,
        "wrapped": wrapped,
        "master_key_id": master.id,
        "created_at": now_seconds(),
    }
    async with database.begin() as connection:
        await connection.execute(insert(root_keys).values(row).on_conflict_do_nothing())


async def _seal_anew(database: Database, master: MasterKey, root: bytes, former: str) -> None:
    wrapped = await master.wrap(root)
    async with database.begin() as connection:
        await connection.execute(
            root_keys.update()
            .where(root_keys.c.wrapped == former)
            .values(wrapped=wrapped, master_key_id=master.id)
        )
