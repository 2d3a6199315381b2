"""Every query on organizations, projects and members."""

import time
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from windlass.core.db import Database
from windlass.core.errors import AlreadyExists, NotFound
from windlass.core.ids import new_id
from windlass.users.domain import Member, Organization, Project, grantable
from windlass.users.tables import api_keys, key_changes, members, organizations, projects


def now() -> int:
    """Unix seconds."""
    return int(time.time())


def _organization(row: Any) -> Organization:
    return Organization(id=row.id, title=row.title, created_at=row.created_at)


def _project(row: Any) -> Project:
    return Project(
        id=row.id,
        organization_id=row.organization_id,
        title=row.title,
        created_at=row.created_at,
        archived_at=row.archived_at,
        is_default=row.is_default,
    )


async def revoke_where(connection: AsyncConnection, where: sa.ColumnElement[bool]) -> list[str]:
    """Revokes the live keys that match and notes the change; answers their ids."""
    statement = (
        api_keys.update()
        .where(where, api_keys.c.revoked_at == 0)
        .values(revoked_at=now())
        .returning(api_keys.c.id)
    )
    ids = [row.id for row in await connection.execute(statement)]
    if ids:
        await connection.execute(key_changes.insert(), [{"key_id": key} for key in ids])
    return ids


async def _reconsider(connection: AsyncConnection, organization_id: str) -> None:
    """Makes holders of cached keys ask again about those that reach into all of an organization."""
    reaching = sa.select(api_keys.c.id).where(
        api_keys.c.project_id == "",
        api_keys.c.revoked_at == 0,
        sa.or_(api_keys.c.organization_id == organization_id, api_keys.c.role == "platform_admin"),
    )
    await connection.execute(key_changes.insert().from_select(["key_id"], reaching))


class TenantStore:
    """Organizations, projects and members."""

    def __init__(self, database: Database):
        self._database = database

    async def create_organization(self, title: str, *, owner: str) -> Organization:
        """A new organization with its default project and its first owner."""
        organization = Organization(id=new_id("org-"), title=title, created_at=now())
        async with self._database.begin() as connection:
            await connection.execute(
                organizations.insert().values(
                    id=organization.id, title=title, created_at=organization.created_at
                )
            )
            await connection.execute(
                projects.insert().values(
                    id=new_id("proj_"),
                    organization_id=organization.id,
                    title="Default project",
                    created_at=organization.created_at,
                    is_default=True,
                )
            )
            await connection.execute(
                members.insert().values(
                    organization_id=organization.id,
                    project_id="",
                    user_id=owner,
                    role="organization_owner",
                    created_at=organization.created_at,
                )
            )
        return organization

    async def organizations(
        self, only: str | None, *, after: str, limit: int
    ) -> Sequence[Organization]:
        """Live organizations by id; `only` restricts to one."""
        query = organizations.select().where(
            organizations.c.deleted_at == 0, organizations.c.id > after
        )
        if only is not None:
            query = query.where(organizations.c.id == only)
        query = query.order_by(organizations.c.id).limit(limit)
        async with self._database.read() as connection:
            return [_organization(row) for row in await connection.execute(query)]

    async def organization(self, organization_id: str) -> Organization:
        """One live organization; raises NotFound."""
        found = await self.organizations(organization_id, after="", limit=1)
        if not found:
            raise NotFound(f"No organization {organization_id!r}.", param="organization_id")
        return found[0]

    async def delete_organization(self, organization_id: str) -> None:
        """Marks it deleted, archives its projects, revokes its keys; idempotent."""
        async with self._database.begin() as connection:
            await connection.execute(
                organizations.update()
                .where(organizations.c.id == organization_id, organizations.c.deleted_at == 0)
                .values(deleted_at=now())
            )
            await connection.execute(
                projects.update()
                .where(projects.c.organization_id == organization_id, projects.c.archived_at == 0)
                .values(archived_at=now())
            )
            await revoke_where(connection, api_keys.c.organization_id == organization_id)
            await _reconsider(connection, organization_id)

    async def create_project(self, organization_id: str, title: str) -> Project:
        """A new project; raises AlreadyExists when the organization has one of that title."""
        project = Project(new_id("proj_"), organization_id, title, now(), 0, False)
        statement = projects.insert().values(
            id=project.id,
            organization_id=organization_id,
            title=title,
            created_at=project.created_at,
        )
        try:
            async with self._database.begin() as connection:
                await connection.execute(statement)
        except IntegrityError as error:
            raise AlreadyExists(f"There is a project {title!r} already.", param="title") from error
        return project

    async def projects(
        self, organization_id: str, *, only: str, after: str, limit: int, archived: bool
    ) -> Sequence[Project]:
        """The organization's projects by id; `only` (when set) restricts to one."""
        query = projects.select().where(
            projects.c.organization_id == organization_id, projects.c.id > after
        )
        if only:
            query = query.where(projects.c.id == only)
        if not archived:
            query = query.where(projects.c.archived_at == 0)
        async with self._database.read() as connection:
            rows = await connection.execute(query.order_by(projects.c.id).limit(limit))
            return [_project(row) for row in rows]

    async def project(self, organization_id: str, project_id: str) -> Project:
        """One project of the organization, archived or not; raises NotFound."""
        found = await self.projects(
            organization_id, only=project_id, after="", limit=1, archived=True
        )
        if not found or not project_id:
            raise unknown_project(project_id)
        return found[0]

    async def any_project(self, project_id: str) -> Project:
        """One project of any organization, archived or not; raises NotFound."""
        query = projects.select().where(projects.c.id == project_id)
        async with self._database.read() as connection:
            row = (await connection.execute(query)).first()
        if row is None:
            raise unknown_project(project_id)
        return _project(row)

    async def archive_project(self, organization_id: str, project_id: str) -> Project:
        """Archives it and revokes its keys; idempotent; raises NotFound."""
        async with self._database.begin() as connection:
            await connection.execute(
                projects.update()
                .where(
                    projects.c.organization_id == organization_id,
                    projects.c.id == project_id,
                    projects.c.archived_at == 0,
                )
                .values(archived_at=now())
            )
            await revoke_where(
                connection,
                sa.and_(
                    api_keys.c.organization_id == organization_id,
                    api_keys.c.project_id == project_id,
                ),
            )
            await _reconsider(connection, organization_id)
        return await self.project(organization_id, project_id)

    async def put_member(self, member: Member) -> Member:
        """Adds a member or changes its role; keys of a stronger role are revoked."""
        statement = (
            insert(members)
            .values(
                organization_id=member.organization_id,
                project_id=member.project_id,
                user_id=member.user_id,
                role=member.role,
                created_at=member.created_at,
            )
            .on_conflict_do_update(
                index_elements=["organization_id", "project_id", "user_id"],
                set_={"role": member.role},
            )
        )
        async with self._database.begin() as connection:
            await connection.execute(statement)
            await revoke_where(
                connection,
                sa.and_(_keys_of(member), api_keys.c.role.not_in(grantable(member.role))),
            )
        return member

    async def roles_of(self, organization_id: str, project_id: str, user_id: str) -> set[str]:
        """The roles that a person has in a scope, as a member or by a live key."""
        member = Member(organization_id, project_id, user_id, "", 0)
        query = sa.union(
            sa.select(members.c.role).where(
                members.c.organization_id == organization_id,
                members.c.project_id == project_id,
                members.c.user_id == user_id,
            ),
            sa.select(api_keys.c.role).where(_keys_of(member), api_keys.c.revoked_at == 0),
        )
        async with self._database.read() as connection:
            return set((await connection.execute(query)).scalars())

    async def members(
        self, organization_id: str, project_id: str, *, after: str, limit: int
    ) -> Sequence[Member]:
        """Members of exactly this scope, by user id."""
        query = (
            members.select()
            .where(
                members.c.organization_id == organization_id,
                members.c.project_id == project_id,
                members.c.user_id > after,
            )
            .order_by(members.c.user_id)
            .limit(limit)
        )
        async with self._database.read() as connection:
            rows = await connection.execute(query)
            return [
                Member(row.organization_id, row.project_id, row.user_id, row.role, row.created_at)
                for row in rows
            ]

    async def remove_member(self, organization_id: str, project_id: str, user_id: str) -> None:
        """Removes a member and revokes the keys it holds in that scope; idempotent."""
        member = Member(organization_id, project_id, user_id, "", 0)
        async with self._database.begin() as connection:
            await connection.execute(
                members.delete().where(
                    members.c.organization_id == organization_id,
                    members.c.project_id == project_id,
                    members.c.user_id == user_id,
                )
            )
            await revoke_where(connection, _keys_of(member))


def unknown_project(project_id: str) -> NotFound:
    """The error of a project that is not there, or not for the caller."""
    return NotFound(f"No project {project_id!r}.", param="project_id")


def _keys_of(member: Member) -> sa.ColumnElement[bool]:
    where = [
        api_keys.c.organization_id == member.organization_id,
        api_keys.c.user_id == member.user_id,
    ]
    if member.project_id:
        where.append(api_keys.c.project_id == member.project_id)
    return sa.and_(*where)
