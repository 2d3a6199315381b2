"""The end of keys that nobody uses, where an organization's policy asks for it, and its notice."""

from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from windlass.core import telemetry
from windlass.core.clock import now_seconds
from windlass.core.db import Database
from windlass.core.db.leases import claim, held, no_rows, released
from windlass.core.db.wake import Wake
from windlass.users.domain import KEYS_TOPIC
from windlass.users.keys.notices import AT_ONCE as TOLD_AT_ONCE
from windlass.users.keys.notices import NOTICE_SECONDS, KeyNotices
from windlass.users.keys.revocation import revoke_where, take_turn
from windlass.users.tables import api_keys, key_policies

log = telemetry.logger("users.keys")
TOPIC = "users.key_policies"
DAY_SECONDS = 86_400
# Between two looks at an organization's keys, and those that end in one transaction.
LOOK_SECONDS, AT_ONCE = 600, 500
LEASE_SECONDS = 60.0
_ENDS_SOME = key_policies.c.unused_days > 0
# A key is used while one that was made with it is, whosever that is: it would end with it.
_QUERY = (
    "WITH RECURSIVE unused AS (SELECT id, parent_key_id, created_at FROM users_api_keys"
    " WHERE organization_id = :organization AND revoked_at = 0"
    " AND (expires_at = 0 OR expires_at > :now)"
    " AND greatest(created_at, rotated_at, last_used_at) <= :before),"
    " line AS (SELECT id, parent_key_id FROM unused UNION"
    " SELECT key.id, key.parent_key_id FROM users_api_keys key"
    " JOIN line ON key.parent_key_id = line.id),"
    " needed AS (SELECT line.id, line.parent_key_id FROM line JOIN users_api_keys key USING (id)"
    " WHERE key.revoked_at = 0 AND (key.expires_at = 0 OR key.expires_at > :now)"
    " AND greatest(key.created_at, key.rotated_at, key.last_used_at) > :before UNION"
    " SELECT line.id, line.parent_key_id FROM line JOIN needed ON line.id = needed.parent_key_id)"
    " SELECT id FROM unused WHERE NOT EXISTS (SELECT FROM needed WHERE needed.id = unused.id)"
    " {which} ORDER BY created_at DESC, id DESC LIMIT :limit"
)
_UNUSED = sa.text(_QUERY.format(which=""))
# Whose owner was not told of the end that they are about to have.
_UNTOLD = sa.text(
    _QUERY.format(
        which="AND EXISTS (SELECT FROM users_api_keys key WHERE key.id = unused.id"
        " AND key.kind = 'key' AND key.told_unused_at <>"
        " greatest(key.created_at, key.rotated_at, key.last_used_at) + :life)"
    )
)


class UnusedKeys:
    """Finds unused keys, and ends them one organization after the other."""

    def __init__(self, database: Database, notices: KeyNotices, wake: Wake):
        self._database = database
        self._notices = notices
        self._wake = wake
        self.has_none = no_rows(database, _ENDS_SOME)

    async def find(self, organization_id: str, days: int, *, limit: int) -> Sequence[str]:
        """Ids of the live keys that were not used for so many days, the newest; 0: none."""
        async with self._database.autocommit() as connection:
            return await _unused(connection, organization_id, days, limit)

    async def once(self) -> bool:
        """Ends some of an organization whose turn it is; returns True if there may be more."""
        due = sa.and_(_ENDS_SOME, key_policies.c.looked_at <= now_seconds() - LOOK_SECONDS)
        token, rows = await claim(self._database, key_policies, due, limit=1, seconds=LEASE_SECONDS)
        for row in rows:
            await self._end(row.id, row.unused_days, token)
        return bool(rows)

    async def _end(self, organization_id: str, days: int, token: str) -> None:
        policy = sa.and_(key_policies.c.id == organization_id, held(key_policies, token))
        async with self._database.begin() as connection:
            await take_turn(connection, organization_id)
            # Another may have been set meanwhile.
            if (await connection.execute(sa.select(key_policies.c.id).where(policy))).first():
                found = await _unused(connection, organization_id, days, AT_ONCE)
                ended = await revoke_where(connection, organization_id, api_keys.c.id.in_(found))
                looked_at = 0 if len(found) == AT_ONCE else now_seconds()
                values = {"looked_at": looked_at, **released()}
                await connection.execute(key_policies.update().where(policy).values(values))
            else:
                return
        if ended:
            self._wake.touch(KEYS_TOPIC)
            log.info("unused_keys_ended", organization_id=organization_id, keys=len(ended))
        # What should have ended before now is not told of as what is about to.
        if len(found) < AT_ONCE:
            await self._give_notice(organization_id, days)

    async def _give_notice(self, organization_id: str, days: int) -> None:
        """Tells owners a week before, or as the last quarter of a shorter time begins."""
        life = days * DAY_SECONDS
        before = now_seconds() - life + min(NOTICE_SECONDS, life // 4)
        query = {"organization": organization_id, "before": before, "life": life}
        while True:
            async with self._database.begin() as connection:
                bounds = {"now": now_seconds(), "limit": TOLD_AT_ONCE}
                found = (await connection.execute(_UNTOLD, query | bounds)).scalars().all()
                told = await self._notices.unused(connection, organization_id, found, life)
            if told < TOLD_AT_ONCE:
                break


async def _unused(
    connection: AsyncConnection, organization_id: str, days: int, limit: int
) -> Sequence[str]:
    if not days:
        return []
    now = now_seconds()
    bounds = {"now": now, "before": now - days * DAY_SECONDS, "limit": limit}
    rows = await connection.execute(_UNUSED, {"organization": organization_id, **bounds})
    return rows.scalars().all()
