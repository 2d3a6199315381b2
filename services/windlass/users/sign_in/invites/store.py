"""Every query on invites."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from windlass.bounds import MAX_INVITES
from windlass.core.clock import now_seconds
from windlass.core.db import Database
from windlass.core.db.paging import by_creation
from windlass.core.errors import FailedPrecondition, InvalidArgument
from windlass.users.identity.tables import invites
from windlass.users.keys.revocation import take_turn
from windlass.users.sign_in.domain import Invite, unknown_invite

# An invite that is over stays to be seen for so long.
SHOWN_SECONDS = 90 * 86_400


class InviteStore:
    """Invites of organizations."""

    def __init__(self, database: Database):
        self._database = database

    async def create(self, invite: Invite, digest: bytes) -> None:
        """Stores an invite by its link's digest; raises InvalidArgument where too many are open."""
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

    async def get(self, organization_id: str, invite_id: str) -> Invite:
        """Returns one invite of the organization; raises NotFound."""
        query = invites.select().where(
            invites.c.organization_id == organization_id, invites.c.id == invite_id
        )
        async with self._database.autocommit() as connection:
            row = (await connection.execute(query)).first()
        if row is None:
            raise unknown_invite(invite_id)
        return invite_of(row)

    async def list(self, organization_id: str, *, after: str, limit: int) -> Sequence[Invite]:
        """Invites of the organization, newest first."""
        own = invites.c.organization_id == organization_id
        query = by_creation(
            invites.select().where(own),
            invites.c.created_at,
            invites.c.id,
            after=after,
            of=own,
            oldest_first=False,
        )
        async with self._database.autocommit() as connection:
            return [invite_of(row) for row in await connection.execute(query.limit(limit))]

    async def delete(self, organization_id: str, invite_id: str) -> None:
        """Removes an invite; raises NotFound, and FailedPrecondition for one that was accepted."""
        which = (invites.c.organization_id == organization_id, invites.c.id == invite_id)
        unused = invites.delete().where(*which, invites.c.accepted_at == 0)
        async with self._database.begin() as connection:
            removed = (await connection.execute(unused)).rowcount
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


def invite_of(row: Any) -> Invite:
    """The invite of a row."""
    return Invite(**{name: getattr(row, name) for name in Invite.__slots__})
