"""Every query on members: who has which role where, and that somebody always answers for it."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from windlass.core.db import Database
from windlass.core.db.paging import newest_first
from windlass.core.errors import InvalidArgument
from windlass.policy import OWNER_ROLES, PLATFORM_ROLES, PROJECT_OWNER
from windlass.users.domain import SERVICE_ACCOUNT, ApiKey, Member, last_owner
from windlass.users.keys.losses import affected_keys, losses_by, require_own_key
from windlass.users.keys.revocation import end_where, note, resting_on, take_turn
from windlass.users.standing import is_platform_admin, standings
from windlass.users.tables import members, projects

# Held while owners change: two that remove each other must not both succeed.
_LOCK = 0x57494E4400000002


async def lock_owners(connection: AsyncConnection) -> None:
    """Lets one transaction at a time change who owns what."""
    await connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))


async def require_platform_admin(
    connection: AsyncConnection, *, without: sa.ColumnElement[bool]
) -> None:
    """Raises FailedPrecondition when nobody would administer the platform without these rows."""
    query = sa.select(sa.exists().where(is_platform_admin(), _is_person(), sa.not_(without)))
    if not await connection.scalar(query):
        raise last_owner("the platform")


def _is_person() -> sa.ColumnElement[bool]:
    return members.c.kind != SERVICE_ACCOUNT


class MemberStore:
    """Members of organizations and projects."""

    def __init__(self, database: Database):
        self._database = database

    async def put(self, member: Member, *, by_key: str = "") -> Member:
        """Adds a member or changes its role, which the keys that rest on it follow.

        Raises FailedPrecondition for a demotion of the last owner, or one that takes rights of
        the caller's key `by_key`, and InvalidArgument for one that would become another kind
        of member.
        """
        statement = insert(members).values(
            {name: getattr(member, name) for name in Member.__slots__}
        )
        statement = statement.on_conflict_do_update(
            index_elements=["organization_id", "project_id", "user_id"],
            set_={"role": member.role},
        )
        async with self._database.begin() as connection:
            await lock_owners(connection)
            old = await self._find(connection, member)
            if old is not None:
                if old.kind != member.kind:
                    message = f"{member.user_id} is a {old.kind.replace('_', ' ')} already."
                    raise InvalidArgument(message, param="kind")
                await self._require_owner_left(connection, old, becoming=member.role)
                await require_own_key(connection, await losses_by(connection, member), by_key)
            await connection.execute(statement)
            await note(connection, resting_on([member.user_id]))
        return member

    async def kind_of(self, organization_id: str, project_id: str, user_id: str) -> str:
        """The kind of the member in a scope; empty for no member."""
        member = Member(organization_id, project_id, user_id, "", 0)
        async with self._database.autocommit() as connection:
            found = await self._find(connection, member)
        return found.kind if found else ""

    async def remove(
        self, organization_id: str, project_id: str, user_id: str, *, by_key: str = ""
    ) -> list[str]:
        """Removes a member; revokes its keys in that scope, and others' that rested on its
        rights; returns their ids; idempotent.

        Who leaves an organization leaves its projects; one without an owner then passes to the
        owners of the organization. Raises FailedPrecondition for the last owner, and where the
        caller's key `by_key` would end with another person.
        """
        member = Member(organization_id, project_id, user_id, "", 0)
        scope = [members.c.organization_id == organization_id, members.c.user_id == user_id]
        if project_id:
            scope.append(members.c.project_id == project_id)
        async with self._database.begin() as connection:
            await lock_owners(connection)
            old = await self._find(connection, member)
            if old is not None:
                await self._require_owner_left(connection, old, becoming="")
            await take_turn(connection, organization_id)
            losses = await losses_by(connection, member)
            await require_own_key(connection, losses, by_key)
            await connection.execute(members.delete().where(*scope))
            if not project_id:
                await _pass_projects_on(connection, organization_id)
            ended: list[str] = []
            # Again, for one that was made while the first waited for it.
            while some := await end_where(connection, losses.ends):
                ended += some
            await note(connection, resting_on([user_id]))
        return ended

    async def affected_keys(
        self, member: Member, *, after: str, limit: int
    ) -> list[tuple[ApiKey, str | None]]:
        """The keys that would lose if somebody became this member, or left, without a role;
        with what they could be then.
        """
        async with self._database.autocommit() as connection:
            return await affected_keys(connection, member, after=after, limit=limit)

    async def _find(self, connection: AsyncConnection, member: Member) -> Member | None:
        query = members.select().where(
            members.c.organization_id == member.organization_id,
            members.c.project_id == member.project_id,
            members.c.user_id == member.user_id,
        )
        row = (await connection.execute(query)).first()
        return _member(row) if row else None

    async def _require_owner_left(
        self, connection: AsyncConnection, old: Member, *, becoming: str
    ) -> None:
        """Raises FailedPrecondition when a scope loses its last owner by this change."""
        if old.role not in OWNER_ROLES or old.kind == SERVICE_ACCOUNT:
            return
        itself = sa.and_(
            members.c.organization_id == old.organization_id,
            members.c.project_id == old.project_id,
            members.c.user_id == old.user_id,
        )
        if old.role in PLATFORM_ROLES and becoming not in PLATFORM_ROLES:
            await require_platform_admin(connection, without=itself)
        if becoming in OWNER_ROLES:
            return
        query = sa.select(
            sa.exists().where(
                members.c.organization_id == old.organization_id,
                members.c.project_id == old.project_id,
                members.c.role.in_(OWNER_ROLES),
                _is_person(),
                sa.not_(itself),
            )
        )
        if not await connection.scalar(query):
            raise last_owner("the project" if old.project_id else "the organization")

    async def roles_of(self, organization_id: str, project_id: str, user_id: str) -> set[str]:
        """The roles that somebody has in a project, or in the organization and its projects."""
        query = sa.select(members.c.role).where(
            members.c.organization_id == organization_id, members.c.user_id == user_id
        )
        if project_id:
            query = query.where(members.c.project_id == project_id)
        async with self._database.autocommit() as connection:
            return set((await connection.execute(query)).scalars())

    async def held(self, organization_id: str, project_id: str, user_id: str) -> set[str]:
        """The roles of somebody that count in a scope: there, above it, and on the platform."""
        scope = (organization_id, project_id)
        async with self._database.autocommit() as connection:
            found = await standings(connection, [user_id], within=scope)
        return found[user_id].roles(scope)

    async def list(
        self, organization_id: str, project_id: str, *, after: str, limit: int
    ) -> Sequence[Member]:
        """Members of exactly this scope, newest first."""
        here = sa.and_(
            members.c.organization_id == organization_id, members.c.project_id == project_id
        )
        query = newest_first(
            members.select().where(here),
            members.c.created_at,
            members.c.user_id,
            after=after,
            of=here,
        )
        async with self._database.autocommit() as connection:
            return [_member(row) for row in await connection.execute(query.limit(limit))]


async def _pass_projects_on(connection: AsyncConnection, organization_id: str) -> None:
    """Makes the organization's owners owners of its projects that have none."""
    other = members.alias()
    ownerless = ~sa.exists().where(
        other.c.organization_id == organization_id,
        other.c.project_id == projects.c.id,
        other.c.role.in_(OWNER_ROLES),
        other.c.kind != SERVICE_ACCOUNT,
    )
    everywhere = members.join(projects, projects.c.organization_id == members.c.organization_id)
    heirs = (
        sa.select(
            members.c.organization_id,
            projects.c.id,
            members.c.user_id,
            sa.literal(PROJECT_OWNER),
            members.c.created_at,
        )
        .select_from(everywhere)
        .where(
            members.c.organization_id == organization_id,
            members.c.project_id == "",
            members.c.role.in_(OWNER_ROLES),
            _is_person(),
            ownerless,
        )
    )
    names = ["organization_id", "project_id", "user_id", "role", "created_at"]
    statement = insert(members).from_select(names, heirs)
    await connection.execute(
        statement.on_conflict_do_update(index_elements=names[:3], set_={"role": PROJECT_OWNER})
    )


def _member(row: Any) -> Member:
    return Member(**{name: getattr(row, name) for name in Member.__slots__})
