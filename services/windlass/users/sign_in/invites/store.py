"""Every query on invites."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from windlass.bounds import MAX_INVITES
from windlass.core.clock import now_seconds
from windlass.core.db import Database
from windlass.core.db.paging import by_creation
from windlass.core.errors import FailedPrecondition, InvalidArgument
from windlass.users.identity.tables import invites
from windlass.users.keys.revocation import take_turn
from windlass.users.mail.letters import invitation
from windlass.users.mail.outbox import MailOutbox
from windlass.users.mail.tables import INVITE, mails
from windlass.users.mail.withdrawal import withdraw
from windlass.users.sign_in.domain import Invite, InviteMail, unknown_invite
from windlass.users.tables import organizations, people

# An invite that is over stays to be seen for so long.
SHOWN_SECONDS = 90 * 86_400


class InviteStore:
    """Invites of organizations."""

    def __init__(self, database: Database, outbox: MailOutbox):
        self._database = database
        self._outbox = outbox

    async def create(
        self, invite: Invite, digest: bytes, *, mailed_link: str = "", must_mail: bool = False
    ) -> None:
        """Stores an invite by its link's digest, and queues the mail of a link that is given.

        Raises InvalidArgument where too many are open, and as MailOutbox.put where it `must_mail`.
        """
        values = {name: getattr(invite, name) for name in Invite.__slots__}
        is_open = (
            invites.c.organization_id == invite.organization_id,
            invites.c.accepted_at == 0,
            invites.c.expires_at > now_seconds(),
        )
        async with self._database.begin() as connection:
            await take_turn(connection, invite.organization_id, of="invites")
            count = sa.select(sa.func.count()).select_from(invites).where(*is_open)
            if (await connection.execute(count)).scalar_one() >= MAX_INVITES:
                message = f"There may be {MAX_INVITES} open invites."
                raise InvalidArgument(message, param="email")
            await connection.execute(invites.insert().values(values | {"digest": digest}))
            if mailed_link:
                await self._mail(connection, invite, mailed_link, must=must_mail)
        if mailed_link:
            self._outbox.queued()

    async def _mail(
        self, connection: AsyncConnection, invite: Invite, link: str, *, must: bool
    ) -> None:
        is_inviter = sa.and_(
            people.c.organization_id == organizations.c.id, people.c.user_id == invite.invited_by
        )
        query = (
            sa.select(organizations.c.title, people.c.name)
            .select_from(organizations.outerjoin(people, is_inviter))
            .where(organizations.c.id == invite.organization_id)
        )
        title, name = (await connection.execute(query)).one()
        letter = invitation(title, name or invite.invited_by, link, invite.expires_at)
        await self._outbox.put(
            connection,
            invite.organization_id,
            invite.email,
            letter,
            kind=INVITE,
            about=invite.id,
            expires_at=invite.expires_at,
            must=must,
        )

    async def get(self, organization_id: str, invite_id: str) -> tuple[Invite, InviteMail]:
        """Returns one invite of the organization, and what became of its mail; raises NotFound."""
        query = _WITH_MAIL.where(
            invites.c.organization_id == organization_id, invites.c.id == invite_id
        )
        async with self._database.autocommit() as connection:
            row = (await connection.execute(query)).first()
        if row is None:
            raise unknown_invite(invite_id)
        return invite_of(row), _mail_of(row)

    async def list(
        self, organization_id: str, *, after: str, limit: int
    ) -> Sequence[tuple[Invite, InviteMail]]:
        """Invites of the organization, newest first, and what became of their mails."""
        own = invites.c.organization_id == organization_id
        query = by_creation(
            _WITH_MAIL.where(own),
            invites.c.created_at,
            invites.c.id,
            after=after,
            of=own,
            oldest_first=False,
        )
        async with self._database.autocommit() as connection:
            rows = await connection.execute(query.limit(limit))
            return [(invite_of(row), _mail_of(row)) for row in rows]

    async def delete(self, organization_id: str, invite_id: str) -> None:
        """Removes an invite; raises NotFound, and FailedPrecondition for one that was accepted."""
        which = (invites.c.organization_id == organization_id, invites.c.id == invite_id)
        unused = invites.delete().where(*which, invites.c.accepted_at == 0)
        async with self._database.begin() as connection:
            removed = (await connection.execute(unused)).rowcount
            if removed:
                await withdraw(connection, organization_id, invite_id)
        if not removed:
            await self.get(organization_id, invite_id)
            raise FailedPrecondition(
                "This invite was accepted. Remove the member instead.",
                reason="invite_accepted",
                param="invite_id",
            )

    async def accepted(self, digest: bytes) -> str:
        """The id of an invite's link that was accepted; empty where it was not."""
        query = sa.select(invites.c.id).where(invites.c.digest == digest, invites.c.accepted_at > 0)
        async with self._database.autocommit() as connection:
            return (await connection.execute(query)).scalar_one_or_none() or ""

    async def organization_of(self, digest: bytes) -> str:
        """The organization of an open invite's link; raises NotFound."""
        query = sa.select(invites.c.organization_id).where(
            invites.c.digest == digest,
            invites.c.accepted_at == 0,
            invites.c.expires_at > now_seconds(),
        )
        async with self._database.autocommit() as connection:
            found = (await connection.execute(query)).scalar_one_or_none()
        if found is None:
            raise unknown_invite()
        return str(found)

    async def sweep(self) -> None:
        """Removes what was over long ago."""
        old = invites.c.expires_at <= now_seconds() - SHOWN_SECONDS
        async with self._database.begin() as connection:
            await connection.execute(invites.delete().where(old))


_WITH_MAIL = sa.select(invites, mails.c.sent_at, mails.c.error).outerjoin(
    mails, mails.c.about == invites.c.id
)


def _mail_of(row: Any) -> InviteMail:
    return InviteMail(sent_at=row.sent_at or 0, error=row.error or "")


def invite_of(row: Any) -> Invite:
    """The invite of a row."""
    return Invite(**{name: getattr(row, name) for name in Invite.__slots__})
