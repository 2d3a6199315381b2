"""Ends of exports with what they are of: no copy outlives an erasure, or a person's departure."""

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from windlass.core.db import Database
from windlass.core.db.wake import Wake
from windlass.core.exporting.tables import TOPIC, exports
from windlass.core.leaving.claims import Scope


async def end_exports_of(connection: AsyncConnection, organization_id: str, user_id: str) -> None:
    """Ends the exports about a person who leaves an organization."""
    of_person = sa.and_(exports.c.organization_id == organization_id, exports.c.user_id == user_id)
    await connection.execute(exports.update().where(of_person).values(expires_at=0))


class ExportsEnd:
    """Ends the exports of an organization of which something is erased."""

    def __init__(self, database: Database, wake: Wake):
        self._database = database
        self._wake = wake

    async def __call__(self, scope: Scope) -> str:
        """Returns what the erasure waits for."""
        own = exports.c.organization_id == scope.organization_id
        async with self._database.begin() as connection:
            await connection.execute(
                exports.update().where(own, exports.c.expires_at > 0).values(expires_at=0)
            )
            remain = await connection.scalar(sa.select(sa.exists().where(own)))
        if not remain:
            return ""
        self._wake.touch(TOPIC)
        return "exports, which are removed"
