"""Moves the root key from one master key to another, while servers run."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from windlass.core.clock import now_ms
from windlass.core.config import Settings
from windlass.core.db import Database
from windlass.core.ids import new_id
from windlass.core.keyring import KeyringError
from windlass.core.keyring.root import OpenedRoot, open_root, retire_others, seal_root
from windlass.core.keyring.seals import Seal, SealStore
from windlass.maintenance.database import database_status
from windlass.rbac.chains import AuditChains


@dataclass(frozen=True)
class MasterKeyStatus:
    """Seals of the root key, and the master keys of this configuration."""

    seals: Sequence[Seal]
    # Of this configuration: the one that seals, and the one that opened the root key.
    configured: str
    opened_by: str


async def master_key_status(settings: Settings, url: str) -> MasterKeyStatus:
    """Return the state of the master keys; raises KeyringError where none opens the root key."""
    async with _opened(settings, url) as (opened, _):
        return MasterKeyStatus(opened.seals, opened.masters[0].id, opened.opened_by)


async def rotate_master_key(settings: Settings, url: str, *, by: str) -> str:
    """Seal the root key by the configured master key as well, and return that key's id.

    `by` is the local user that the audit row names. Raises KeyringError, OSError.
    """
    async with _opened(settings, url) as (opened, database):
        name = await seal_root(opened, SealStore(database))
        await _audit(database, "rotate", name, by)
    return name


async def retire_master_keys(settings: Settings, url: str, *, by: str) -> Sequence[str]:
    """Remove what other master keys sealed, and return their ids; raises KeyringError, OSError."""
    async with _opened(settings, url) as (opened, database):
        retired = await retire_others(opened, SealStore(database))
        for name in retired:
            await _audit(database, "retire", name, by)
    return retired


@asynccontextmanager
async def _opened(settings: Settings, url: str) -> AsyncIterator[tuple[OpenedRoot, Database]]:
    status = await database_status(url)
    if problem := status.schema.problem():
        raise KeyringError(f"{problem} Run `windlass db migrate`, or start the server once.")
    database = Database(url, pool_size=2)
    try:
        if not await SealStore(database).all():
            raise KeyringError("the database has no root key yet: start the server once")
        yield await open_root(settings, database), database
    finally:
        await database.close()


async def _audit(database: Database, action: str, master_key: str, by: str) -> None:
    row = {
        "id": new_id("audit_"),
        "at_ms": now_ms(),
        "organization_id": "",
        "user_id": by,
        "key_id": "",
        "action": f"windlass.admin/master-key-{action}",
        "resource": master_key,
        "outcome": "OK",
    }
    await AuditChains(database).append([row])
