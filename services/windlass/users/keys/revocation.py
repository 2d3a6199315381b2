"""The end of keys, and the news of it to whoever holds them in memory."""

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from windlass.core.clock import now_seconds
from windlass.users.tables import api_keys, key_changes


async def revoke_where(connection: AsyncConnection, where: sa.ColumnElement[bool]) -> list[str]:
    """Revokes the live keys that match, and what was made with them; returns their ids.

    One generation after the other: who makes a key holds a lock on the one it is made with,
    so that no child is born after its generation was read.
    """
    ended: list[str] = []
    while True:
        statement = (
            api_keys.update()
            .where(where, api_keys.c.revoked_at == 0)
            .values(revoked_at=now_seconds())
            .returning(api_keys.c.id)
        )
        ids = list((await connection.execute(statement)).scalars())
        if not ids:
            break
        ended += ids
        where = api_keys.c.parent_key_id.in_(ids)
    if ended:
        await connection.execute(key_changes.insert(), [{"key_id": key} for key in ended])
    return ended


async def disown_children(
    connection: AsyncConnection, where: sa.ColumnElement[bool], *, of: str
) -> None:
    """Lets keys that other members own outlive the matching keys of somebody who leaves.

    They rest on memberships of their own. A revocation of one key does take them along.
    """
    parents = sa.select(api_keys.c.id).where(where)
    await connection.execute(
        api_keys.update()
        .where(api_keys.c.parent_key_id.in_(parents), api_keys.c.user_id != of)
        .values(parent_key_id="")
    )


async def note(connection: AsyncConnection, where: sa.ColumnElement[bool]) -> None:
    """Makes holders of cached keys ask again about the live ones that match."""
    changed = sa.select(api_keys.c.id).where(where, api_keys.c.revoked_at == 0)
    await connection.execute(key_changes.insert().from_select(["key_id"], changed))
