"""Every query on the groups that have roles in a project."""

from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from windlass.core.clock import now_seconds
from windlass.core.db import Database
from windlass.users.groups.store import Approve, MemberGroup, group_of, people_of, unknown_group
from windlass.users.keys.revocation import note, resting_on
from windlass.users.tables import groups, role_assignments, roles


@dataclass(frozen=True, slots=True)
class ProjectGroup:
    """A group that was given roles in a project."""

    group: MemberGroup
    project_id: str
    # When it was given the first of those that it has.
    added_at: int


class ProjectGroups:
    """Groups by the projects where they have roles."""

    def __init__(self, database: Database):
        self._database = database

    async def list(
        self,
        organization_id: str,
        project_id: str,
        *,
        group_id: str,
        descending: bool,
        after: str,
        limit: int,
    ) -> Sequence[ProjectGroup]:
        """Groups with roles in exactly this project, by their ids; one alone where it is named."""
        given = role_assignments.c
        query = (
            sa.select(groups, sa.func.min(given.created_at).label("added_at"))
            .join(role_assignments, given.group_id == groups.c.id)
            .where(
                given.organization_id == organization_id,
                given.project_id == project_id,
                groups.c.organization_id == organization_id,
                sa.or_(given.ends_at == 0, given.ends_at > now_seconds()),
            )
            .group_by(groups.c.id)
            .order_by(groups.c.id.desc() if descending else groups.c.id)
        )
        if group_id:
            query = query.where(groups.c.id == group_id)
        if after:
            query = query.where(groups.c.id < after if descending else groups.c.id > after)
        async with self._database.autocommit() as connection:
            rows = await connection.execute(query.limit(limit))
            return [ProjectGroup(group_of(row), project_id, row.added_at) for row in rows]

    async def remove(
        self, organization_id: str, project_id: str, group_id: str, approve: Approve
    ) -> None:
        """Takes all its roles in a project from a group; raises NotFound where it has none."""
        given = role_assignments.c
        here = sa.and_(
            given.organization_id == organization_id,
            given.project_id == project_id,
            given.group_id == group_id,
        )
        granted = sa.select(roles.c.permissions).join(role_assignments, given.role_id == roles.c.id)
        # Who gives it a role meanwhile waits: what is taken is what was asked about.
        lock = groups.select().where(
            groups.c.id == group_id, groups.c.organization_id == organization_id
        )
        async with self._database.begin() as connection:
            if (await connection.execute(lock.with_for_update())).first() is None:
                raise unknown_group(group_id)
            held = (await connection.execute(granted.where(here))).scalars().all()
            if not held:
                raise unknown_group(group_id)
            approve(frozenset().union(*held))
            await connection.execute(role_assignments.delete().where(here))
            await note(connection, resting_on(await people_of(connection, group_id)))
