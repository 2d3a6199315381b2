"""The first start: a default organization and its owner's key, written once."""

import os
from pathlib import Path

import sqlalchemy as sa

from windlass.core import telemetry
from windlass.core.clock import now_seconds
from windlass.core.db import Database
from windlass.core.ids import new_id
from windlass.core.rpc import auth
from windlass.policy import PLATFORM_ADMIN
from windlass.users.domain import ApiKey
from windlass.users.keys.store import KeyStore
from windlass.users.store import TenantStore

log = telemetry.logger("users")
OWNER_KEY_FILE = "owner.key"
OWNER = "owner"
_LOCK = 0x57494E4400000001


async def bootstrap(
    database: Database, tenants: TenantStore, keys: KeyStore, *, data_dir: Path, key_prefix: str
) -> None:
    """Makes the first organization unless there is one.

    The owner's key goes to `<data_dir>/owner.key` (mode 0600) and is nowhere
    else; the file may be deleted once the key is kept elsewhere.
    """
    async with database.begin() as lock:
        # Held while other connections write: a second server waits, then finds the row.
        await lock.execute(sa.text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
        if await tenants.organizations(None, after="", limit=1):
            return
        secret = auth.new_secret(key_prefix)
        path = data_dir / OWNER_KEY_FILE
        write_private(path, secret)
        organization = await tenants.create_organization(
            "Default organization", owner=OWNER, role=PLATFORM_ADMIN
        )
        key = owner_key(secret, organization_id=organization.id, user_id=OWNER, prefix=key_prefix)
        await keys.create(key, auth.digest(secret))
    log.info("first_organization_created", path=str(path))


def owner_key(secret: str, *, organization_id: str, user_id: str, prefix: str) -> ApiKey:
    """A platform administrator's key that no other key made."""
    return ApiKey(
        id=new_id("key_"),
        name="owner",
        organization_id=organization_id,
        project_id="",
        user_id=user_id,
        role=PLATFORM_ADMIN,
        redacted=auth.redact(secret, prefix),
        created_at=now_seconds(),
        expires_at=0,
        revoked_at=0,
        last_used_at=0,
        made_by="",
        parent_key_id="",
    )


def write_private(path: Path, text: str) -> None:
    """Replaces a file by one line that only its owner can read."""
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text + "\n")
        file.flush()
        os.fsync(file.fileno())
