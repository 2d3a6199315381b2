"""The end of keys, and the news of it to processes that hold them in memory."""

from collections.abc import Collection

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.ext.asyncio import AsyncConnection

from windlass.core.clock import now_seconds
from windlass.policy import PLATFORM_ROLES
from windlass.users.domain import SESSION
from windlass.users.tables import api_keys, key_changes, members

_TURN = sa.text("SELECT pg_advisory_xact_lock(hashtextextended(:turn, 0))")
_SHARED = sa.text("SELECT pg_advisory_xact_lock_shared(hashtextextended(:turn, 0))")


def resting_on(people: Collection[str]) -> sa.ColumnElement[bool]:
    """The keys that these people own, made, or made a key for that stands above."""
    names = sa.cast(list(people), ARRAY(sa.Text))
    return sa.or_(api_keys.c.user_id.in_(people), api_keys.c.rests_on.overlap(names))


def of_operators() -> sa.ColumnElement[bool]:
    """The keys and sessions of whoever operates the platform, which act in any organization."""
    operates = sa.exists().where(
        members.c.organization_id == api_keys.c.organization_id,
        members.c.user_id == api_keys.c.user_id,
        members.c.role.in_(PLATFORM_ROLES),
    )
    session = sa.and_(api_keys.c.kind == SESSION, operates)
    return sa.or_(api_keys.c.role.in_(PLATFORM_ROLES), session)


async def revoke_where(
    connection: AsyncConnection, organization_id: str, where: sa.ColumnElement[bool]
) -> list[str]:
    """Revokes the live keys that match, and what was made with them; returns their ids.

    They are an organization's, or were made with its keys.

    One generation after the other: who makes a key holds a lock on the one it is made with,
    so that no child is born after its generation was read. One that has ended may have
    children that live.
    """
    await take_turn(connection, organization_id)
    ended: list[str] = []
    while True:
        ended += await end_where(connection, where)
        family = (await connection.execute(sa.select(api_keys.c.id).where(where))).scalars().all()
        if not family:
            return ended
        where = api_keys.c.parent_key_id.in_(family)


async def take_turn(connection: AsyncConnection, organization_id: str, *, of: str = "keys") -> None:
    """Waits until nobody else changes several keys of an organization: two would wait for each
    other. Other things `of` it have turns of their own.
    """
    await connection.execute(_TURN, {"turn": f"users.{of} {organization_id}"})


async def share_turn(connection: AsyncConnection, organization_id: str, *, of: str) -> None:
    """Waits for whoever has a turn or waits for one, and then holds up who comes later."""
    await connection.execute(_SHARED, {"turn": f"users.{of} {organization_id}"})


async def end_where(connection: AsyncConnection, where: sa.ColumnElement[bool]) -> list[str]:
    """Revokes the live keys that match, and no other; returns their ids."""
    statement = (
        api_keys.update()
        .where(where, api_keys.c.revoked_at == 0)
        .values(revoked_at=now_seconds())
        .returning(api_keys.c.id)
    )
    ended = list((await connection.execute(statement)).scalars())
    if ended:
        await connection.execute(key_changes.insert(), [{"key_id": key} for key in ended])
    return ended


async def note(connection: AsyncConnection, where: sa.ColumnElement[bool]) -> None:
    """Makes holders of cached keys ask again about the live ones that match."""
    changed = sa.select(api_keys.c.id).where(where, api_keys.c.revoked_at == 0)
    await connection.execute(key_changes.insert().from_select(["key_id"], changed))


async def note_organization(connection: AsyncConnection, organization_id: str) -> None:
    """Makes holders of cached keys ask again about every key of an organization, by one row.

    Its operators' keys are named, since holders know them by the organization that they act in.
    """
    await connection.execute(key_changes.insert().values(organization_id=organization_id))
    await note(connection, sa.and_(api_keys.c.organization_id == organization_id, of_operators()))
