"""Mail that is not sent any more, or whose address is forgotten; its row counts on."""

from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from windlass.users.identity.tables import invites
from windlass.users.mail.tables import WAITING, WITHDRAWN, mails
from windlass.users.tables import people


def withdrawn() -> dict[str, Any]:
    """State of a row that is not sent."""
    return {"state": WITHDRAWN, "sealed": b""}


async def withdraw(connection: AsyncConnection, organization_id: str, about: str) -> None:
    """Sends nothing more about an invite or a key."""
    own = mails.c.organization_id == organization_id, mails.c.about == about
    waiting = mails.update().where(*own, mails.c.state == WAITING)
    await connection.execute(waiting.values(**withdrawn()))


async def forget_recipient(connection: AsyncConnection, organization_id: str, user_id: str) -> None:
    """Erases a person's address from what was mailed, and sends them nothing more.

    To be called while the organization still knows the address.
    """
    address = sa.select(people.c.email).where(
        people.c.organization_id == organization_id,
        people.c.user_id == user_id,
        people.c.email != "",
    )
    theirs = sa.select(invites.c.id).where(
        invites.c.organization_id == organization_id,
        sa.or_(invites.c.accepted_by == user_id, invites.c.user_id == user_id),
    )
    own = (
        mails.c.organization_id == organization_id,
        sa.or_(mails.c.recipient.in_(address), mails.c.about.in_(theirs)),
    )
    unsent = mails.update().where(*own, mails.c.state == WAITING)
    await connection.execute(unsent.values(**withdrawn()))
    await connection.execute(mails.update().where(*own).values(recipient="", error=""))
