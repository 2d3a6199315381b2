"""The keys that end or may do less when a member leaves or gets another role."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from windlass.core.db.paging import newest_first
from windlass.core.errors import FailedPrecondition
from windlass.policy import PLATFORM_ROLES, ROLES, lesser
from windlass.users.domain import SESSION, ApiKey, Member
from windlass.users.keys.revocation import resting_on
from windlass.users.keys.store import key_of
from windlass.users.standing import standings
from windlass.users.tables import api_keys

_LIVE = api_keys.c.revoked_at == 0
_KIND = (api_keys.c.organization_id, api_keys.c.project_id, api_keys.c.role)


@dataclass(frozen=True, slots=True)
class Losses:
    """The keys that lose when somebody becomes this member or, without a role, leaves."""

    member: Member
    # By organization, project and role of a key that rests on the member: its role then.
    becomes: Mapping[tuple[str, str, str], str | None]

    @property
    def any(self) -> sa.ColumnElement[bool]:
        """The live keys that end or may do less."""
        return self._matching(list(self.becomes))

    @property
    def ends(self) -> sa.ColumnElement[bool]:
        """The live keys that are worth nothing then, and so end with a departure."""
        return self._matching([kind for kind, role in self.becomes.items() if role is None])

    def role_of(self, key: ApiKey) -> str | None:
        """Returns the role that one of these keys has at most then; None where it ends."""
        kind = (key.organization_id, key.project_id, key.role)
        own = key.user_id == self.member.user_id and not self.member.role
        return None if own else self.becomes[kind]

    def _matching(self, kinds: Sequence[tuple[str, str, str]]) -> sa.ColumnElement[bool]:
        resting = resting_on([self.member.user_id])
        found = [sa.and_(resting, sa.tuple_(*_KIND).in_(kinds))] if kinds else []
        if not self.member.role:
            # Their own keys there end with the membership, whatever other roles they have.
            found.append(sa.and_(api_keys.c.user_id == self.member.user_id, _scope(self.member)))
        return sa.and_(_LIVE, sa.or_(sa.false(), *found))


def _scope(member: Member) -> sa.ColumnElement[bool]:
    """The keys of the member's organization, or of its project."""
    organization = api_keys.c.organization_id == member.organization_id
    if not member.project_id:
        return organization
    return sa.and_(organization, api_keys.c.project_id == member.project_id)


async def losses_by(connection: AsyncConnection, member: Member) -> Losses:
    """Returns what keys lose when somebody becomes this member; call it before they do."""
    scope = (member.organization_id, member.project_id)
    now = (await standings(connection, [member.user_id]))[member.user_id]
    then = now.becoming(member.role, scope)
    # A role of the platform counts in every organization.
    reach = sa.true() if now.held.get(scope) in PLATFORM_ROLES else _scope(member)
    # A session has no role of its own to lose: elsewhere it goes on with its person's roles there.
    is_key = api_keys.c.kind != SESSION
    query = sa.select(*_KIND).where(_LIVE, resting_on([member.user_id]), is_key, reach).distinct()
    becomes = {}
    for organization, project, role in await connection.execute(query):
        at = (organization, project)
        before = lesser(role, now.roles(at), project_id=project)
        after = lesser(role, then.roles(at), project_id=project)
        if _is_less(before, after) or (not member.role and after is None):
            becomes[organization, project, role] = after
    return Losses(member, becomes)


def _is_less(before: str | None, after: str | None) -> bool:
    if before is None:
        return False
    return after is None or not ROLES[before] <= ROLES[after]


async def require_own_key(connection: AsyncConnection, losses: Losses, key_id: str) -> None:
    """Raises FailedPrecondition when the caller's key would lose by what it does to another."""
    user_id = losses.member.user_id
    affected = sa.exists().where(losses.any, api_keys.c.id == key_id, api_keys.c.user_id != user_id)
    if key_id and await connection.scalar(sa.select(affected)):
        raise FailedPrecondition(
            f"Your own key rests on {user_id}, who made it or a key above it, and would lose "
            "rights with them. Use a key that does not, of another owner or of `windlass admin "
            "recover`.",
            reason="own_key_affected",
            param="user_id",
        )


async def affected_keys(
    connection: AsyncConnection, member: Member, *, after: str, limit: int
) -> list[tuple[ApiKey, str | None]]:
    """The keys that lose when somebody becomes this member, newest first, and their roles then."""
    losses = await losses_by(connection, member)
    query = newest_first(
        api_keys.select().where(losses.any),
        api_keys.c.created_at,
        api_keys.c.id,
        after=after,
        of=losses.any,
    )
    keys = [key_of(row) for row in await connection.execute(query.limit(limit))]
    return [(key, losses.role_of(key)) for key in keys]
