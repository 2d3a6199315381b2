"""The roles that people hold in each scope, and the worth of a key that rests on them."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from windlass.core.clock import now_seconds
from windlass.policy import (
    INTO_PROJECTS,
    PLATFORM_ROLES,
    PROJECT_OWNER,
    SELF,
    lesser,
    permissions_of,
)
from windlass.users.domain import ApiKey
from windlass.users.tables import (
    group_members,
    members,
    organizations,
    people,
    projects,
    role_assignments,
    roles,
)

# An organization, and a project of it or "".
Scope = tuple[str, str]


def is_active(
    organization_id: sa.ColumnElement[str], user_id: sa.ColumnElement[str]
) -> sa.ColumnElement[bool]:
    """Returns whether somebody's memberships and roles in an organization count."""
    return ~sa.exists().where(
        people.c.organization_id == organization_id,
        people.c.user_id == user_id,
        people.c.deactivated_at > 0,
    )


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
    connection: AsyncConnection, user_ids: Collection[str], *, within: Scope | None = None
) -> dict[str, Standing]:
    """The standing of each of these people: whole, or as far as it counts in a scope.

    Memberships of who is deactivated there count for nothing.
    """
    here: sa.ColumnElement[bool] = members.c.role.not_in(PLATFORM_ROLES)
    if within is not None:
        organization, project = within
        here = sa.and_(
            here,
            members.c.organization_id == organization,
            members.c.project_id.in_({"", project}),
        )
    query = members.select().where(
        members.c.user_id.in_(user_ids),
        sa.or_(here, is_platform_admin()),
        is_active(members.c.organization_id, members.c.user_id),
    )
    found = {person: Standing({}) for person in user_ids}
    for row in await connection.execute(query):
        found[row.user_id].held[row.organization_id, row.project_id] = row.role
    return found


def held_roles(organization_id: str) -> sa.Subquery:
    """Roles of the tenant's own that people have now, with the group by which they have each."""
    given = role_assignments.c
    here = sa.and_(
        given.organization_id == organization_id,
        sa.or_(given.ends_at == 0, given.ends_at > now_seconds()),
    )
    columns = (given.group_id, given.project_id, given.role_id, given.ends_at)
    own = sa.select(given.user_id, *columns).where(here, given.user_id != "")
    of_groups = (
        sa.select(group_members.c.user_id, *columns)
        .join(group_members, group_members.c.group_id == given.group_id)
        .where(here)
    )
    return own.union_all(of_groups).subquery("held")


async def granted(
    connection: AsyncConnection, user_ids: Collection[str], scope: Scope
) -> dict[str, frozenset[str]]:
    """Permissions of each of these people by roles of the tenant's own, there or above.

    They or a group that they are in were given them.
    """
    organization_id, project_id = scope
    held = held_roles(organization_id)
    query = (
        sa.select(held.c.user_id, roles.c.permissions)
        .join(roles, roles.c.id == held.c.role_id)
        .where(
            held.c.user_id.in_(user_ids),
            held.c.project_id.in_({"", project_id}),
            is_active(sa.literal(organization_id), held.c.user_id),
        )
    )
    found = dict.fromkeys(user_ids, frozenset[str]())
    for row in await connection.execute(query):
        found[row.user_id] |= frozenset(row.permissions)
    return found


@dataclass(frozen=True, slots=True)
class Worth:
    """Roles and permissions of a credential while everybody on whom it rests has theirs."""

    # None where only roles of the tenant's own are left of it; of a key, one.
    roles: tuple[str, ...]
    # Beyond those of the roles, what roles of the tenant's own grant.
    permissions: frozenset[str]
    # A session that lacks what only owners may, until its person signs in anew.
    is_weakened: bool = False
    # As of a principal.
    fresh_until: int | None = None


async def worth(connection: AsyncConnection, key: ApiKey) -> Worth | None:
    """The strongest role within the key's own that everybody holds on whom the key rests.

    These are its owner, its maker, and whoever made the keys that it was made with: each has
    seen a secret that it takes to have this key, or another like it. What the owner has by roles
    of the tenant's own comes on top, as far as the key's role grants it and the others have it
    too. None where nothing is left.
    """
    user_ids = people_behind(key)
    scope = (key.organization_id, key.project_id)
    known = await standings(connection, user_ids, within=scope)
    held = {person: standing.roles(scope) for person, standing in known.items()}
    return worth_of(key, held, await granted(connection, user_ids, scope))


def people_behind(key: ApiKey) -> set[str]:
    """Everybody on whom a key rests."""
    return {key.user_id, key.made_by, *key.rests_on} - {""}


def worth_of(
    key: ApiKey, held: Mapping[str, set[str]], given: Mapping[str, frozenset[str]]
) -> Worth | None:
    """The worth of a key by the roles, and the permissions beside them, of those behind it."""
    role = lesser(key.role, *held.values(), project_id=key.project_id) or ""
    permissions = permissions_of((role,))
    roles = (role,) if role else ()
    if given[key.user_id]:
        power = (permissions_of(held[person]) | given[person] for person in held)
        permissions |= permissions_of((key.role,)).intersection(*power)
    return Worth(roles, permissions) if role or permissions - {SELF} else None


async def worth_of_session(connection: AsyncConnection, session: ApiKey, project_id: str) -> Worth:
    """All that a person who signed in may do in a project, or in no project of the organization.

    Roles of the platform count where they are held: who vouches for the people of another
    organization does not vouch for those who operate the installation.
    """
    organization_id, person = session.organization_id, session.user_id
    scope = (organization_id, project_id)
    held = (await standings(connection, [person], within=scope))[person].held
    roles = tuple(sorted({role for at, role in held.items() if at in (scope, (scope[0], ""))}))
    given = (await granted(connection, [person], (organization_id, "")))[person]
    if project_id:
        # What is given in a project reaches no further than the project.
        here = (await granted(connection, [person], scope))[person]
        given |= here & permissions_of((PROJECT_OWNER,))
    permissions = permissions_of(roles) | given
    return Worth(roles, permissions | {SELF} if permissions else permissions)


async def home_project(connection: AsyncConnection, session: ApiKey) -> str:
    """The project that a session's call concerns which names none; empty where there is none.

    The organization's default project where its person may enter that, or the first of theirs.
    """
    organization_id, person = session.organization_id, session.user_id
    own = sa.select(members.c.project_id, members.c.role).where(
        members.c.organization_id == organization_id, members.c.user_id == person
    )
    mine = {row.project_id: row.role for row in await connection.execute(own)}
    query = sa.select(projects.c.id).where(
        projects.c.organization_id == organization_id, projects.c.archived_at == 0
    )
    if mine.get("", "") not in INTO_PROJECTS:
        query = query.where(projects.c.id.in_(mine))
    query = query.order_by(projects.c.is_default.desc(), projects.c.created_at, projects.c.id)
    return (await connection.execute(query.limit(1))).scalar_one_or_none() or ""
