"""Recovery of an installation whose owners' keys are lost, without a server."""

import asyncio
from pathlib import Path

from windlass.audit.details import details
from windlass.core.clock import now_ms
from windlass.core.config import Settings
from windlass.core.db import Database
from windlass.core.ids import new_id
from windlass.migrations import migrate
from windlass.rbac.chains import AuditChains
from windlass.users.allowed_networks.store import AllowedNetworksStore
from windlass.users.domain import valid_user
from windlass.users.ownership.recovery import recover

ACTION = "windlass.admin/recover"


async def recover_owner(
    settings: Settings,
    url: str,
    *,
    user_id: str,
    path: Path,
    by: str,
    without_certificates: bool = False,
    without_networks: bool = False,
) -> str:
    """Write a new key of a platform administrator to `path`, and return the key's id.

    `by` is the local user that the audit row names. `without_certificates` demands no certificates
    of clients any more, and `without_networks` takes credentials from anywhere. Raises AppError.
    """
    if settings.database.migrate:
        await asyncio.to_thread(migrate, url)
    database = Database(url, pool_size=2)
    try:
        key = await recover(
            database,
            user_id=valid_user(user_id),
            path=path,
            key_prefix=settings.auth.key_prefix,
            without_certificates=without_certificates,
        )
        networks = AllowedNetworksStore(database)
        before = await networks.clear(key.organization_id) if without_networks else None
        # Audited as the same change by a call is.
        was, is_now = details(before and before.audited(), None)
        row = {
            "id": new_id("audit_"),
            "at_ms": now_ms(),
            "organization_id": key.organization_id,
            "user_id": by,
            "key_id": key.id,
            "action": ACTION,
            "resource": user_id,
            "outcome": "OK",
            "before": was,
            "after": is_now,
        }
        await AuditChains(database).append([row])
    finally:
        await database.close()
    return key.id
