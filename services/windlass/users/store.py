"""Every query on organizations and projects."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from windlass.bounds import MAX_GEOGRAPHY_PROJECTS
from windlass.core.clock import now_seconds
from windlass.core.db import Database
from windlass.core.db.paging import newest_first
from windlass.core.errors import AlreadyExists, InvalidArgument, NotFound
from windlass.core.ids import new_id
from windlass.core.quotas import Quota, Quotas
from windlass.core.rpc import audited
from windlass.policy import ORGANIZATION_OWNER, PROJECT_OWNER
from windlass.users.domain import Organization, Project
from windlass.users.keys.revocation import note, of_operators, revoke_where
from windlass.users.tables import api_keys, members, organizations, projects

# Work of another within a transaction of these queries.
Also = Callable[[AsyncConnection], Awaitable[None]]


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
        external_key_id=row.external_key_id,
        geography=row.geography,
        keeps_answers=row.keeps_answers,
    )


async def reconsider(connection: AsyncConnection, organization_id: str) -> None:
    """Makes holders of cached keys ask again about those that reach into all of an organization."""
    reaching = sa.or_(api_keys.c.organization_id == organization_id, of_operators())
    await note(connection, sa.and_(api_keys.c.project_id == "", reaching))


class TenantStore:
    """Organizations and projects."""

    def __init__(self, database: Database, quotas: Quotas):
        self._database = database
        self._quotas = quotas

    async def create_organization(
        self, title: str, *, owner: str, role: str = ORGANIZATION_OWNER
    ) -> Organization:
        """A new organization with its default project and the first owner of both."""
        project_id = new_id("proj_")
        organization = Organization(id=new_id("org-"), title=title, created_at=now_seconds())
        async with self._database.begin() as connection:
            await connection.execute(
                organizations.insert().values(
                    id=organization.id, title=title, created_at=organization.created_at
                )
            )
            await connection.execute(
                projects.insert().values(
                    id=project_id,
                    organization_id=organization.id,
                    title="Default project",
                    created_at=organization.created_at,
                    is_default=True,
                )
            )
            await connection.execute(
                members.insert(),
                [
                    {
                        "organization_id": organization.id,
                        "project_id": scope,
                        "user_id": owner,
                        "role": held,
                        "created_at": organization.created_at,
                    }
                    for scope, held in (("", role), (project_id, PROJECT_OWNER))
                ],
            )
        return organization

    async def organizations(
        self, only: str | None, *, after: str, limit: int
    ) -> Sequence[Organization]:
        """Live organizations, newest first; `only` restricts to one."""
        allowed = sa.true() if only is None else organizations.c.id == only
        query = organizations.select().where(organizations.c.deleted_at == 0, allowed)
        query = newest_first(
            query, organizations.c.created_at, organizations.c.id, after=after, of=allowed
        )
        async with self._database.autocommit() as connection:
            return [_organization(row) for row in await connection.execute(query.limit(limit))]

    async def organization(self, organization_id: str) -> Organization:
        """Returns one live organization; raises NotFound."""
        found = await self.organizations(organization_id, after="", limit=1)
        if not found:
            raise NotFound(f"No organization {organization_id!r}.", param="organization_id")
        return found[0]

    async def create_project(
        self,
        organization_id: str,
        title: str,
        *,
        owner: str,
        project_id: str = "",
        geography: str = "",
        also: Also | None = None,
    ) -> Project:
        """A new project and its first owner; `also` adds to it in the same transaction.

        Raises AlreadyExists when the organization has one of that title, PermissionDenied
        `quota_exceeded`, InvalidArgument for one too many of a geography, and what `also` raises.
        """
        wanted = project_id or new_id("proj_")
        project = Project(
            wanted, organization_id, title, now_seconds(), 0, False, geography=geography
        )
        statement = projects.insert().values(
            id=project.id,
            organization_id=organization_id,
            title=title,
            created_at=project.created_at,
            geography=geography,
        )
        try:
            async with self._database.begin() as connection:
                await _require_live(connection, organization_id)
                await self._require_room(connection, organization_id, geography)
                await connection.execute(statement)
                if also is not None:
                    await also(connection)
                await connection.execute(
                    members.insert().values(
                        organization_id=organization_id,
                        project_id=project.id,
                        user_id=owner,
                        role=PROJECT_OWNER,
                        created_at=project.created_at,
                    )
                )
        except IntegrityError as error:
            raise _taken(title) from error
        return project

    async def _require_room(
        self, connection: AsyncConnection, organization_id: str, geography: str
    ) -> None:
        """Raises PermissionDenied, or InvalidArgument for one too many of a geography.

        Whoever else makes one meanwhile waits.
        """
        may = await self._quotas.hold(connection, Quota.PROJECTS, organization_id, "")
        count = (await connection.execute(_live_projects(organization_id))).scalar_one()
        may.require(organization=count + 1, project=0)
        if not geography:
            return
        bound = sa.select(sa.func.count()).where(
            projects.c.organization_id == organization_id, projects.c.geography != ""
        )
        # Those that are archived too: what they have stays there.
        if (await connection.execute(bound)).scalar_one() >= MAX_GEOGRAPHY_PROJECTS:
            raise InvalidArgument(
                f"An organization has at most {MAX_GEOGRAPHY_PROJECTS} projects of geographies, "
                "archived ones included. Delete some, or leave geography out.",
                param="geography",
            )

    async def count_projects(self, organization_id: str) -> int:
        """The number of projects of the organization that are not archived."""
        async with self._database.autocommit() as connection:
            return int((await connection.execute(_live_projects(organization_id))).scalar_one())

    async def projects(
        self, organization_id: str, *, only: str, after: str, limit: int, archived: bool
    ) -> Sequence[Project]:
        """The organization's projects, newest first; `only` (when set) restricts to one."""
        own = projects.c.organization_id == organization_id
        query = projects.select().where(own)
        if only:
            query = query.where(projects.c.id == only)
        if not archived:
            query = query.where(projects.c.archived_at == 0)
        async with self._database.autocommit() as connection:
            rows = await connection.execute(
                newest_first(
                    query, projects.c.created_at, projects.c.id, after=after, of=own
                ).limit(limit)
            )
            return [_project(row) for row in rows]

    async def project(self, organization_id: str, project_id: str) -> Project:
        """Returns one project of the organization, archived or not; raises NotFound."""
        found = await self.projects(
            organization_id, only=project_id, after="", limit=1, archived=True
        )
        if not found or not project_id:
            raise unknown_project(project_id)
        return found[0]

    async def any_project(self, project_id: str) -> Project:
        """Returns one project of any organization, archived or not; raises NotFound."""
        query = projects.select().where(projects.c.id == project_id)
        async with self._database.autocommit() as connection:
            row = (await connection.execute(query)).first()
        if row is None:
            raise unknown_project(project_id)
        return _project(row)

    async def residencies(self, *, after: str, limit: int) -> Sequence[tuple[str, str]]:
        """Ids and geographies of projects that have one, of every organization, by id."""
        query = (
            sa.select(projects.c.id, projects.c.geography)
            .where(projects.c.geography != sa.literal_column("''"), projects.c.id > after)
            .order_by(projects.c.id)
            .limit(limit)
        )
        async with self._database.autocommit() as connection:
            return [(row.id, row.geography) for row in await connection.execute(query)]

    async def geographies(self) -> Sequence[str]:
        """The geographies that projects have."""
        query = sa.select(projects.c.geography).distinct()
        query = query.where(projects.c.geography != sa.literal_column("''"))
        async with self._database.autocommit() as connection:
            return sorted((await connection.execute(query)).scalars())

    async def change_project(self, organization_id: str, project_id: str, **values: Any) -> Project:
        """Changes columns of a project; raises NotFound, and AlreadyExists as `create_project`."""
        own = sa.and_(projects.c.organization_id == organization_id, projects.c.id == project_id)
        try:
            async with self._database.begin() as connection:
                query = projects.select().where(own).with_for_update()
                if (found := (await connection.execute(query)).first()) is not None:
                    audited.change(_project(found), replace(_project(found), **values))
                await connection.execute(projects.update().where(own).values(values))
        except IntegrityError as error:
            raise _taken(str(values["title"])) from error
        return await self.project(organization_id, project_id)

    async def archive_project(self, organization_id: str, project_id: str) -> Project:
        """Archives it and revokes its keys; idempotent; raises NotFound."""
        async with self._database.begin() as connection:
            await archive(connection, organization_id, project_id)
        return await self.project(organization_id, project_id)


async def archive(connection: AsyncConnection, organization_id: str, project_id: str) -> bool:
    """Archives a project and revokes its keys; returns whether it was live."""
    archived = await connection.execute(
        projects.update()
        .where(
            projects.c.organization_id == organization_id,
            projects.c.id == project_id,
            projects.c.archived_at == 0,
        )
        .values(archived_at=now_seconds())
    )
    await revoke_where(
        connection,
        organization_id,
        sa.and_(
            api_keys.c.organization_id == organization_id,
            api_keys.c.project_id == project_id,
        ),
    )
    await reconsider(connection, organization_id)
    return bool(archived.rowcount)


async def _require_live(connection: AsyncConnection, organization_id: str) -> None:
    """Keeps the organization from being deleted until the transaction ends; raises NotFound."""
    # Its erasure is of the projects that it has then.
    query = sa.select(organizations.c.id).where(
        organizations.c.id == organization_id, organizations.c.deleted_at == 0
    )
    if (await connection.execute(query.with_for_update(read=True))).first() is None:
        raise NotFound(f"No organization {organization_id!r}.", param="organization_id")


def _live_projects(organization_id: str) -> sa.Select[int]:
    return sa.select(sa.func.count()).where(
        projects.c.organization_id == organization_id, projects.c.archived_at == 0
    )


def _taken(title: str) -> AlreadyExists:
    return AlreadyExists(
        f"The project {title!r} exists already. Choose another title.", param="title"
    )


def unknown_project(project_id: str) -> NotFound:
    """The error of a project that is not there, or not for the caller."""
    return NotFound(f"No project {project_id!r}.", param="project_id")
