"""Every query on members: who has which role where."""

from collections.abc import Collection, Sequence
from dataclasses import replace

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from windlass.core.db import Database
from windlass.core.db.paging import newest_first
from windlass.core.errors import InvalidArgument
from windlass.core.rpc import audited
from windlass.policy import PLATFORM_ROLES, permissions_of
from windlass.users.contacts import Contact, addressed, contacts, has_address
from windlass.users.domain import ApiKey, Member, managed_by_directory
from windlass.users.keys.losses import affected_keys, losses_by, require_own_key
from windlass.users.keys.revocation import note, resting_on
from windlass.users.membership.departures import leave, told
from windlass.users.membership.owners import (
    find_member,
    lock_owners,
    member_of,
    require_owner_left,
)
from windlass.users.standing import granted, standings
from windlass.users.tables import directories, members, people


class MemberStore:
    """Members of organizations and projects."""

    def __init__(self, database: Database):
        self._database = database

    async def put(self, member: Member, *, title: str | None = None, by_key: str = "") -> Member:
        """Adds a member or changes its role, which the keys that rest on it follow, and its title.

        The rest of one that is there stays.
        Raises FailedPrecondition for a demotion of the last owner, or one that takes rights of
        the caller's key `by_key`, and InvalidArgument for one that would become another kind
        of member.
        """
        member = replace(member, title=title or "")
        changed = {"role": member.role} | ({} if title is None else {"title": title})
        statement = (
            insert(members)
            .values({name: getattr(member, name) for name in Member.__slots__})
            .on_conflict_do_update(
                index_elements=["organization_id", "project_id", "user_id"], set_=changed
            )
            .returning(members)
        )
        async with self._database.begin() as connection:
            await lock_owners(connection, member.organization_id)
            if title is not None and await _is_managed(connection, member):
                raise managed_by_directory(f"the name of {member.user_id}")
            old = await find_member(connection, member)
            if old is not None:
                if old.kind != member.kind:
                    message = f"{member.user_id} is a {old.kind.replace('_', ' ')} already."
                    raise InvalidArgument(message, param="kind")
                await require_owner_left(connection, old, becoming=member.role)
                await require_own_key(connection, await losses_by(connection, member), by_key)
            put = member_of((await connection.execute(statement)).one())
            audited.change(told(old), told(put), resource=put.user_id)
            await note(connection, resting_on([member.user_id]))
        return put

    async def kind_of(self, organization_id: str, project_id: str, user_id: str) -> str:
        """The kind of the member in a scope; empty for no member."""
        member = Member(organization_id, project_id, user_id, "", 0)
        async with self._database.autocommit() as connection:
            found = await find_member(connection, member)
        return found.kind if found else ""

    async def remove(
        self,
        organization_id: str,
        project_id: str,
        user_id: str,
        *,
        by_key: str = "",
        successor: str = "",
    ) -> list[str]:
        """Removes a member; revokes its keys in that scope, and others' that rested on its
        rights; returns their ids; idempotent.

        Who leaves an organization leaves its projects; one without an owner then passes to the
        `successor`, or the owners of the organization, which keeps no name of them. Raises
        FailedPrecondition for the last owner, for a person of the organization's directory, and
        where the caller's key `by_key` would end with another person, and NotFound for a successor
        who is nobody here.
        """
        member = Member(organization_id, project_id, user_id, "", 0)
        async with self._database.begin() as connection:
            await lock_owners(connection, member.organization_id)
            if not project_id and await _is_managed(connection, member):
                raise managed_by_directory(user_id)
            return await leave(connection, member, by_key=by_key, successor=successor)

    async def affected_keys(
        self, member: Member, *, after: str, limit: int
    ) -> list[tuple[ApiKey, str | None]]:
        """The keys that would lose if somebody became this member, or left, without a role;
        with what they could be then.
        """
        async with self._database.autocommit() as connection:
            return await affected_keys(connection, member, after=after, limit=limit)

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

    async def held_anywhere(self, organization_id: str, user_id: str) -> set[str]:
        """The roles of somebody in an organization, in its projects, and on the platform."""
        async with self._database.autocommit() as connection:
            found = (await standings(connection, [user_id]))[user_id].held
        return {
            role
            for (organization, _), role in found.items()
            if organization == organization_id or role in PLATFORM_ROLES
        }

    async def power(self, organization_id: str, project_id: str, user_id: str) -> frozenset[str]:
        """The permissions of somebody that count in a scope, by all their roles."""
        scope = (organization_id, project_id)
        async with self._database.autocommit() as connection:
            found = await standings(connection, [user_id], within=scope)
            given = await granted(connection, [user_id], scope)
        return permissions_of(found[user_id].roles(scope)) | given[user_id]

    async def list(
        self,
        organization_id: str,
        project_id: str,
        *,
        kind: str = "",
        user_ids: Collection[str] = (),
        emails: Collection[str] = (),
        after: str,
        limit: int,
    ) -> Sequence[Member]:
        """Members of exactly this scope, newest first; of a kind, by ids or addresses, if given."""
        here = sa.and_(
            members.c.organization_id == organization_id, members.c.project_id == project_id
        )
        query = members.select().where(here)
        if kind:
            query = query.where(members.c.kind == kind)
        if user_ids:
            query = query.where(members.c.user_id.in_(user_ids))
        if emails:
            query = query.where(has_address(organization_id, emails))
        query = newest_first(
            query,
            members.c.created_at,
            members.c.user_id,
            after=after,
            of=here,
        )
        async with self._database.autocommit() as connection:
            return [member_of(row) for row in await connection.execute(query.limit(limit))]

    async def contacts(self, organization_id: str, user_ids: Collection[str]) -> dict[str, Contact]:
        """Returns what an organization knows of people, by their ids."""
        async with self._database.autocommit() as connection:
            return await contacts(connection, organization_id, user_ids)

    async def addressed(self, organization_id: str, email: str) -> str:
        """The id of the active person with an address; empty for nobody, or raises."""
        async with self._database.autocommit() as connection:
            return await addressed(connection, organization_id, email)


async def _is_managed(connection: AsyncConnection, member: Member) -> bool:
    query = sa.exists().where(
        people.c.organization_id == member.organization_id,
        people.c.user_id == member.user_id,
        people.c.managed_at > 0,
        directories.c.id == people.c.organization_id,
    )
    return bool(await connection.scalar(sa.select(query)))
