"""The members who have a permission, and by what."""

from collections import defaultdict
from collections.abc import Mapping

import sqlalchemy as sa

from windlass.core.clock import now_seconds
from windlass.core.db import Database
from windlass.policy import roles_with
from windlass.users.standing import Scope, is_active
from windlass.users.tables import group_members, groups, members, role_assignments, roles


async def holders(
    database: Database, permission: str, scope: Scope, *, after: str, limit: int
) -> Mapping[str, list[str]]:
    """Members who have a permission in a scope, by their ids, each with the roles that grant it.

    A role of the tenant's own is named, with the group that it came by. Whoever administers the
    platform from another organization is not among them.
    """
    grants = _grants(permission, scope)
    people = (
        sa.select(grants.c.user_id)
        .where(grants.c.user_id > after, is_active(sa.literal(scope[0]), grants.c.user_id))
        .group_by(grants.c.user_id)
        .order_by(grants.c.user_id)
        .limit(limit)
        .subquery()
    )
    query = (
        sa.select(grants.c.user_id, grants.c.by)
        .join(people, people.c.user_id == grants.c.user_id)
        .order_by(grants.c.user_id, grants.c.by)
    )
    found: dict[str, list[str]] = defaultdict(list)
    async with database.autocommit() as connection:
        for row in await connection.execute(query):
            found[row.user_id].append(row.by)
    return found


def _grants(permission: str, scope: Scope) -> sa.CTE:
    organization_id, project_id = scope
    scopes = {"", project_id}
    memberships = sa.select(members.c.user_id, members.c.role.label("by")).where(
        members.c.organization_id == organization_id,
        members.c.project_id.in_(scopes),
        members.c.role.in_(roles_with(permission)),
    )
    given = role_assignments.c
    here = sa.and_(
        given.organization_id == organization_id,
        given.project_id.in_(scopes),
        sa.or_(given.ends_at == 0, given.ends_at > now_seconds()),
        roles.c.permissions.contains([permission]),
    )
    direct = (
        sa.select(given.user_id, roles.c.name.label("by"))
        .join(roles, roles.c.id == given.role_id)
        .where(here, given.user_id != "")
    )
    by_group = (
        sa.select(group_members.c.user_id, (roles.c.name + " (" + groups.c.name + ")").label("by"))
        .select_from(role_assignments)
        .join(roles, roles.c.id == given.role_id)
        .join(groups, groups.c.id == given.group_id)
        .join(group_members, group_members.c.group_id == given.group_id)
        .where(here)
    )
    return sa.union(memberships, direct, by_group).cte("grants")
