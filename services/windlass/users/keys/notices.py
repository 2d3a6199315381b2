"""Notices of keys that are about to end: an event of the audit log, and a mail to the owner.

Receivers of the log hear of it by their signed webhooks; the mail goes to whom sign-in or the
directory knows an address of.
"""

from collections.abc import Callable, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from windlass.core.clock import now_seconds
from windlass.core.db import Database
from windlass.core.db.leases import no_rows
from windlass.core.rpc import audited
from windlass.core.rpc.interceptor import AuditSink
from windlass.users.mail.letters import Letter, key_expires, key_unused
from windlass.users.mail.outbox import MailOutbox
from windlass.users.mail.tables import NOTICE
from windlass.users.tables import api_keys, organizations, people

ACTION = "key_ends_soon"
TOPIC = "users.key_notices"
NOTICE_SECONDS = 7 * 86_400
# Of those that live shorter their owner knows when they end.
_LONG_SECONDS = 2 * NOTICE_SECONDS
AT_ONCE = 100
_LAST_USE = sa.func.greatest(api_keys.c.created_at, api_keys.c.rotated_at, api_keys.c.last_used_at)
_IS_KEY = sa.and_(
    api_keys.c.kind == sa.literal_column("'key'"), api_keys.c.revoked_at == sa.literal_column("0")
)
_EXPIRES = sa.and_(_IS_KEY, api_keys.c.expires_at > sa.literal_column("0"))


class KeyNotices:
    """Tells of each key once for each time that it would end."""

    def __init__(self, database: Database, outbox: MailOutbox, audit: AuditSink):
        self._database = database
        self._outbox = outbox
        self._audit = audit
        self.has_none = no_rows(database, _EXPIRES)

    async def once(self) -> bool:
        """Tells of some that expire soon; returns True if there may be more."""
        now = now_seconds()
        soon = (
            _EXPIRES,
            api_keys.c.expires_at > now,
            api_keys.c.expires_at <= now + NOTICE_SECONDS,
            api_keys.c.expires_at - api_keys.c.created_at >= _LONG_SECONDS,
            api_keys.c.told_expires_at != api_keys.c.expires_at,
        )
        told = {"told_expires_at": api_keys.c.expires_at}
        async with self._database.begin() as connection:
            rows = await self._told(connection, sa.and_(*soon), told)
            for row in rows:
                await self._tell(connection, row, "expires", row.expires_at, key_expires)
        if rows:
            self._outbox.queued()
        return len(rows) == AT_ONCE

    async def unused(
        self, connection: AsyncConnection, organization_id: str, ids: Sequence[str], life: int
    ) -> int:
        """Tells of keys that end once nobody has used them for so many seconds.

        In the caller's transaction; returns how many.
        """
        which = (
            api_keys.c.organization_id == organization_id, api_keys.c.id.in_(ids), _IS_KEY
        )  # fmt: skip
        told = {"told_unused_at": _LAST_USE + life}
        rows = await self._told(connection, sa.and_(*which), told)
        for row in rows:
            await self._tell(connection, row, "unused", row.told_unused_at, key_unused)
        if rows:
            self._outbox.queued()
        return len(rows)

    async def _told(
        self, connection: AsyncConnection, which: sa.ColumnElement[bool], told: dict[str, Any]
    ) -> list[Any]:
        """Marks keys as told of; returns them with their organization's title and an address."""
        picked = (
            sa.select(api_keys.c.id)
            .where(which)
            .order_by(api_keys.c.expires_at, api_keys.c.id)
            .limit(AT_ONCE)
            .with_for_update(skip_locked=True)
            .cte("picked")
            .prefix_with("MATERIALIZED", dialect="postgresql")
        )
        address = (
            sa.select(people.c.email)
            .where(
                people.c.organization_id == api_keys.c.organization_id,
                people.c.user_id == api_keys.c.user_id,
                people.c.deactivated_at == 0,
            )
            .scalar_subquery()
        )
        title = (
            sa.select(organizations.c.title)
            .where(organizations.c.id == api_keys.c.organization_id)
            .scalar_subquery()
        )
        statement = (
            api_keys.update()
            .where(api_keys.c.id == picked.c.id)
            .values(**told)
            .returning(
                api_keys,
                address.label("address"),
                title.label("title"),
            )
        )
        return list((await connection.execute(statement)).all())

    async def _tell(
        self,
        connection: AsyncConnection,
        row: Any,
        why: str,
        ends_at: int,
        letter: Callable[[str, str, str, int], Letter],
    ) -> None:
        told = audited.AuditedChange(row.id, None, {"why": why, "ends_at": ends_at})
        self._audit.note(row.organization_id, row.project_id, ACTION, told)
        if row.address and self._outbox.enabled:
            # Whoever has too many mails a day has the event.
            await self._outbox.put(
                connection,
                row.organization_id,
                row.address,
                letter(row.title, row.name, row.id, ends_at),
                kind=NOTICE,
                about=row.id,
                expires_at=ends_at,
            )
