"""The end of what an organization knows of somebody who left it."""

from sqlalchemy.ext.asyncio import AsyncConnection

from windlass.core.clock import now_seconds
from windlass.users.identity.tables import identities, invites
from windlass.users.session_strength.tables import sessions
from windlass.users.tables import people


async def forget(connection: AsyncConnection, organization_id: str, user_id: str) -> None:
    """Erases who somebody was whom an organization has no more; ids stay.

    An issuer's subject stays too, as nobody's: by it somebody who was removed stays out, and is not
    taken for whoever has their name later.
    """
    await connection.execute(
        people.update()
        .where(people.c.organization_id == organization_id, people.c.user_id == user_id)
        .values(email="", name="", updated_at=now_seconds())
    )
    own = invites.c.organization_id == organization_id
    await connection.execute(
        invites.delete().where(own, invites.c.user_id == user_id, invites.c.accepted_at == 0)
    )
    await connection.execute(
        invites.update().where(own, invites.c.accepted_by == user_id).values(email="")
    )
    await connection.execute(
        identities.update()
        .where(identities.c.organization_id == organization_id, identities.c.user_id == user_id)
        .values(user_id="")
    )
    await connection.execute(
        sessions.delete().where(
            sessions.c.organization_id == organization_id, sessions.c.user_id == user_id
        )
    )
