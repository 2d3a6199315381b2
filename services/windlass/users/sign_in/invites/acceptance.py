"""Acceptance of invites by people who have signed in."""

from collections.abc import Mapping
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from windlass.core.clock import now_seconds
from windlass.core.ids import new_id
from windlass.policy import grantable
from windlass.users.domain import SERVICE_ACCOUNT
from windlass.users.identity.tables import invites
from windlass.users.keys.revocation import note, resting_on
from windlass.users.sign_in.domain import (
    IdentityProvider,
    Invite,
    IssuerPerson,
    refused,
    unknown_invite,
)
from windlass.users.sign_in.identities import Membership, identify, user_of
from windlass.users.sign_in.invites.store import invite_of
from windlass.users.standing import Scope, standings
from windlass.users.tables import members, organizations, projects


@dataclass(frozen=True, slots=True)
class InviteOffer:
    """Effects of an invite on a person."""

    invite: Invite
    user_id: str
    given: Mapping[Scope, str]


async def offered(
    connection: AsyncConnection, digest: bytes, person: IssuerPerson, provider: IdentityProvider
) -> InviteOffer:
    """Effects that the invite of a link's digest would have on a person.

    Raises NotFound for one that is not open, and PermissionDenied for who is not meant, or where
    its maker may not give as much any more.
    """
    invite = await _open(connection, digest)
    if provider.organization_id not in ("", invite.organization_id):
        raise refused("This invite is of another organization.")
    if invite.email and person.email != invite.email:
        raise refused(
            "This invite is for another mail address, or your issuer has not verified yours.",
        )
    before = await user_of(connection, person, invite.organization_id)
    if before and invite.user_id and before != invite.user_id:
        raise refused(f"You sign in as {before} already; this invite is for another member.")
    if invite.user_id and not await _is_person(connection, invite):
        raise refused("Whom this invite was for is not a member any more.")
    user_id = before or invite.user_id or new_id("user_")
    given = await _given(connection, invite)
    await _require_power(connection, invite, user_id, given)
    return InviteOffer(invite, user_id, given)


async def accept(
    connection: AsyncConnection, digest: bytes, person: IssuerPerson, provider: IdentityProvider
) -> Membership:
    """Makes a person what an invite says; it is used up by that. Raises as `offered` does."""
    offer = await offered(connection, digest, person, provider)
    invite, user_id = offer.invite, offer.user_id
    now = now_seconds()
    rows = [
        {
            "organization_id": organization_id,
            "project_id": project_id,
            "user_id": user_id,
            "role": role,
            "created_at": now,
        }
        for (organization_id, project_id), role in offer.given.items()
    ]
    if rows:
        # Who is a member already keeps the role that they have.
        await connection.execute(insert(members).values(rows).on_conflict_do_nothing())
    await identify(connection, person, invite.organization_id, user_id)
    used = {"accepted_at": now, "accepted_by": user_id}
    await connection.execute(invites.update().where(invites.c.id == invite.id).values(used))
    await note(connection, resting_on([user_id]))
    return invite.organization_id, user_id


async def _open(connection: AsyncConnection, digest: bytes) -> Invite:
    """The invite of a link, which nobody else accepts meanwhile; raises NotFound."""
    live = sa.select(organizations.c.id).where(organizations.c.deleted_at == 0)
    query = invites.select().where(
        invites.c.digest == digest,
        invites.c.accepted_at == 0,
        invites.c.expires_at > now_seconds(),
        invites.c.organization_id.in_(live),
    )
    row = (await connection.execute(query.with_for_update())).first()
    if row is None:
        raise unknown_invite()
    return invite_of(row)


async def _is_person(connection: AsyncConnection, invite: Invite) -> bool:
    """Returns True if the member whom an invite is for is one, and no service account."""
    query = sa.select(members.c.kind).where(
        members.c.organization_id == invite.organization_id,
        members.c.user_id == invite.user_id,
    )
    kinds = set((await connection.execute(query)).scalars())
    return bool(kinds) and SERVICE_ACCOUNT not in kinds


async def _given(connection: AsyncConnection, invite: Invite) -> dict[Scope, str]:
    """The roles of an invite by scope, in projects that are still there."""
    there = sa.select(projects.c.id).where(
        projects.c.organization_id == invite.organization_id,
        projects.c.archived_at == 0,
        projects.c.id.in_(invite.projects),
    )
    found = (await connection.execute(there)).scalars()
    given = {(invite.organization_id, one): invite.projects[one] for one in found}
    if invite.role:
        given[invite.organization_id, ""] = invite.role
    return given


async def _require_power(
    connection: AsyncConnection, invite: Invite, user_id: str, given: dict[Scope, str]
) -> None:
    """Raises PermissionDenied where who made the invite may not give all of it now.

    A member who gets a way to sign in by it, too, is none above its maker.
    """
    known = await standings(connection, {invite.invited_by, user_id})
    maker, taker = known[invite.invited_by], known[user_id]
    for scope, role in given.items():
        _require(role, maker.roles(scope))
    if invite.user_id:
        organization = (invite.organization_id, "")
        for scope, role in taker.held.items():
            _require(role, maker.roles(scope) | maker.roles(organization))


def _require(role: str, held: set[str]) -> None:
    if not any(role in grantable(one) for one in held):
        raise refused("Who made this invite may not give as much any more. Ask for another.")
