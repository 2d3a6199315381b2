"""The roles that people hold in each scope, and the worth of a key that rests on them."""

from collections.abc import Collection
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from windlass.policy import PLATFORM_ROLES, lesser
from windlass.users.domain import ApiKey
from windlass.users.tables import members, organizations

# An organization, and a project of it or "".
Scope = tuple[str, str]


def is_platform_admin() -> sa.ColumnElement[bool]:
    """The memberships that count everywhere: those of live organizations."""
    live = sa.select(organizations.c.id).where(organizations.c.deleted_at == 0)
    return sa.and_(members.c.role.in_(PLATFORM_ROLES), members.c.organization_id.in_(live))


@dataclass(frozen=True, slots=True)
class Standing:
    """The roles of one person by scope; those of the platform in live organizations."""

    held: dict[Scope, str]

    def roles(self, scope: Scope) -> set[str]:
        """The roles that count in a scope: there, above it, and on the platform."""
        here = (scope, (scope[0], ""))
        return {role for at, role in self.held.items() if at in here or role in PLATFORM_ROLES}

    def becoming(self, role: str, scope: Scope) -> "Standing":
        """The same person with another role in a scope; with none, who leaves it.

        Who leaves an organization leaves its projects.
        """
        if role:
            return Standing({**self.held, scope: role})
        organization, project = scope
        left = {at for at in self.held if at == scope or (not project and at[0] == organization)}
        return Standing({at: one for at, one in self.held.items() if at not in left})


async def standings(
    connection: AsyncConnection, people: Collection[str], *, within: Scope | None = None
) -> dict[str, Standing]:
    """The standing of each of these people: whole, or as far as it counts in a scope."""
    here: sa.ColumnElement[bool] = members.c.role.not_in(PLATFORM_ROLES)
    if within is not None:
        organization, project = within
        here = sa.and_(
            here,
            members.c.organization_id == organization,
            members.c.project_id.in_({"", project}),
        )
    query = members.select().where(members.c.user_id.in_(people), sa.or_(here, is_platform_admin()))
    found = {person: Standing({}) for person in people}
    for row in await connection.execute(query):
        found[row.user_id].held[row.organization_id, row.project_id] = row.role
    return found


async def worth(connection: AsyncConnection, key: ApiKey) -> str | None:
    """The strongest role within the key's own that everybody holds on whom the key rests.

    These are its owner, its maker, and whoever made the keys that it was made with: each has
    seen a secret that it takes to have this key, or another like it. None where there is none.
    """
    people = {key.user_id, key.made_by, *key.rests_on} - {""}
    scope = (key.organization_id, key.project_id)
    known = await standings(connection, people, within=scope)
    held = (standing.roles(scope) for standing in known.values())
    return lesser(key.role, *held, project_id=key.project_id)
