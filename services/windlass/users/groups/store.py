"""Every query on groups and on who is in them."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from windlass.bounds import MAX_GROUP_MEMBERS, MAX_GROUPS
from windlass.core.clock import now_seconds
from windlass.core.db import Database
from windlass.core.db.paging import by_creation
from windlass.core.errors import AlreadyExists, InvalidArgument, NotFound
from windlass.core.rpc import audited
from windlass.users.domain import managed_by_directory
from windlass.users.keys.revocation import note, resting_on, take_turn
from windlass.users.tables import (
    directories,
    group_members,
    groups,
    members,
    role_assignments,
    roles,
)

# Is given the permissions of all roles that a group has, and may raise.
Approve = Callable[[frozenset[str]], None]


@dataclass(frozen=True, slots=True)
class MemberGroup:
    """Members under a name."""

    id: str
    organization_id: str
    name: str
    created_at: int
    # When the organization's directory took it over; 0: it did not.
    managed_at: int = 0
    external_id: str = ""
    version: int = 0
    updated_at: int = 0


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member in a group."""

    group_id: str
    user_id: str
    added_at: int


class GroupStore:
    """Groups of organizations."""

    def __init__(self, database: Database):
        self._database = database

    async def create(self, group: MemberGroup) -> MemberGroup:
        """Stores a group; raises AlreadyExists, and InvalidArgument where there are too many."""
        async with self._database.begin() as connection:
            await insert_group(connection, group)
        return group

    async def get(self, organization_id: str, group_id: str) -> MemberGroup:
        """Returns one group of the organization; raises NotFound."""
        async with self._database.autocommit() as connection:
            return await found_group(connection, organization_id, group_id)

    async def list(
        self, organization_id: str, *, oldest_first: bool, after: str, limit: int
    ) -> Sequence[MemberGroup]:
        """Groups of the organization, by their creation."""
        own = groups.c.organization_id == organization_id
        query = by_creation(
            groups.select().where(own),
            groups.c.created_at,
            groups.c.id,
            after=after,
            of=own,
            oldest_first=oldest_first,
        )
        async with self._database.autocommit() as connection:
            return [group_of(row) for row in await connection.execute(query.limit(limit))]

    async def rename(self, organization_id: str, group_id: str, name: str) -> MemberGroup:
        """Changes a group's name; raises NotFound, AlreadyExists."""
        async with self._database.begin() as connection:
            found = await _own(connection, organization_id, group_id)
            changed = await change_group(connection, group_id, name=name)
            audited.change(found, changed)
            return changed

    async def delete(self, organization_id: str, group_id: str, approve: Approve) -> None:
        """Removes a group, and takes its roles from all who are in it; raises NotFound."""
        async with self._database.begin() as connection:
            found = await _own(connection, organization_id, group_id)
            approve(await permissions_of_group(connection, group_id))
            audited.change(found, None)
            await remove_group(connection, group_id)

    async def add(
        self, organization_id: str, group_id: str, user_id: str, approve: Approve
    ) -> GroupMember:
        """Adds a member of the organization or its projects; idempotent.

        Raises NotFound, and InvalidArgument for who is no member or where there are too many.
        """
        added = GroupMember(group_id, user_id, now_seconds())
        async with self._database.begin() as connection:
            await _own(connection, organization_id, group_id)
            approve(await permissions_of_group(connection, group_id))
            is_member = sa.exists().where(
                members.c.organization_id == organization_id, members.c.user_id == user_id
            )
            if not await connection.scalar(sa.select(is_member)):
                raise InvalidArgument(
                    f"{user_id} is not a member. Add them first.", param="user_id"
                )
            if len(await people_of(connection, group_id)) >= MAX_GROUP_MEMBERS:
                message = f"A group has at most {MAX_GROUP_MEMBERS} members."
                raise InvalidArgument(message, param="user_id")
            statement = insert(group_members).values(asdict(added)).on_conflict_do_nothing()
            if (await connection.execute(statement)).rowcount:
                audited.change(None, added)
            await change_group(connection, group_id)
            await note(connection, resting_on([user_id]))
        return added

    async def remove(
        self, organization_id: str, group_id: str, user_id: str, approve: Approve
    ) -> None:
        """Takes a member out of a group; raises NotFound for one that is not in it."""
        where = [group_members.c.group_id == group_id, group_members.c.user_id == user_id]
        async with self._database.begin() as connection:
            await _own(connection, organization_id, group_id)
            approve(await permissions_of_group(connection, group_id))
            if not (await connection.execute(group_members.delete().where(*where))).rowcount:
                raise NotFound(f"No user {user_id!r} in this group.", param="user_id")
            audited.change({"group_id": group_id, "user_id": user_id}, None)
            await change_group(connection, group_id)
            await note(connection, resting_on([user_id]))

    async def permissions(self, organization_id: str, ids: Collection[str]) -> frozenset[str]:
        """All that the roles of some groups of the organization grant."""
        own = sa.select(groups.c.id).where(
            groups.c.organization_id == organization_id, groups.c.id.in_(ids)
        )
        async with self._database.autocommit() as connection:
            found = [
                await permissions_of_group(connection, one)
                for one in (await connection.execute(own)).scalars().all()
            ]
        return frozenset().union(*found)

    async def members(
        self, group: MemberGroup, *, user_id: str, descending: bool, after: str, limit: int
    ) -> Sequence[GroupMember]:
        """Members of a group, by their ids; one alone where it is named."""
        table = group_members.c
        query = group_members.select().where(table.group_id == group.id)
        if user_id:
            query = query.where(table.user_id == user_id)
        if after:
            query = query.where(table.user_id < after if descending else table.user_id > after)
        query = query.order_by(table.user_id.desc() if descending else table.user_id)
        async with self._database.autocommit() as connection:
            rows = await connection.execute(query.limit(limit))
            return [GroupMember(row.group_id, row.user_id, row.added_at) for row in rows]


async def people_of(connection: AsyncConnection, group_id: str) -> set[str]:
    """Everybody who is in a group."""
    query = sa.select(group_members.c.user_id).where(group_members.c.group_id == group_id)
    return set((await connection.execute(query)).scalars())


async def permissions_of_group(connection: AsyncConnection, group_id: str) -> frozenset[str]:
    """The permissions of all roles that a group has."""
    query = (
        sa.select(roles.c.permissions)
        .join(role_assignments, role_assignments.c.role_id == roles.c.id)
        .where(role_assignments.c.group_id == group_id)
    )
    return frozenset(name for row in (await connection.execute(query)).scalars() for name in row)


def is_managed() -> sa.ColumnElement[bool]:
    """Returns whether the directory of a group's organization decides who is in it."""
    provisioned = sa.exists().where(directories.c.id == groups.c.organization_id)
    return sa.and_(groups.c.managed_at > 0, provisioned)


async def found_group(
    connection: AsyncConnection, organization_id: str, group_id: str, *, locked: bool = False
) -> MemberGroup:
    """Returns one group of the organization; raises NotFound."""
    query = groups.select().where(
        groups.c.id == group_id, groups.c.organization_id == organization_id
    )
    row = (await connection.execute(query.with_for_update() if locked else query)).first()
    if row is None:
        raise unknown_group(group_id)
    return group_of(row)


async def insert_group(connection: AsyncConnection, group: MemberGroup) -> None:
    """Stores a group; raises AlreadyExists, and InvalidArgument where there are too many."""
    own = groups.c.organization_id == group.organization_id
    await take_turn(connection, group.organization_id, of="groups")
    count = sa.select(sa.func.count()).select_from(groups).where(own)
    if (await connection.execute(count)).scalar_one() >= MAX_GROUPS:
        raise InvalidArgument(f"There may be {MAX_GROUPS} groups.", param="name")
    try:
        await connection.execute(groups.insert().values(asdict(group)))
        audited.change(None, group, resource=group.id)
    except IntegrityError as error:
        raise _taken(group.name) from error


async def change_group(
    connection: AsyncConnection, group_id: str, **values: str | int
) -> MemberGroup:
    """Counts a change of a group, and sets columns of it; raises AlreadyExists for a name."""
    counted = {"version": groups.c.version + 1, "updated_at": now_seconds()}
    statement = groups.update().where(groups.c.id == group_id).values(values | counted)
    try:
        return group_of((await connection.execute(statement.returning(groups))).one())
    except IntegrityError as error:
        raise _taken(str(values.get("name"))) from error


async def remove_group(connection: AsyncConnection, group_id: str) -> None:
    """Removes a group, and takes its roles from all who are in it."""
    await note(connection, resting_on(await people_of(connection, group_id)))
    for table in (role_assignments, group_members):
        await connection.execute(table.delete().where(table.c.group_id == group_id))
    await connection.execute(groups.delete().where(groups.c.id == group_id))


async def _own(connection: AsyncConnection, organization_id: str, group_id: str) -> MemberGroup:
    """Locks a group; raises NotFound, and FailedPrecondition for one of the directory."""
    group = await found_group(connection, organization_id, group_id, locked=True)
    provisioned = sa.exists().where(directories.c.id == organization_id)
    if group.managed_at and await connection.scalar(sa.select(provisioned)):
        raise managed_by_directory(f"the group {group.name}")
    return group


def group_of(row: Any) -> MemberGroup:
    """The group of a row."""
    return MemberGroup(**{name: getattr(row, name) for name in MemberGroup.__slots__})


def unknown_group(group_id: str) -> NotFound:
    """The error of a group that is not there, or not for the caller."""
    return NotFound(f"No group {group_id!r}.", param="group_id")


def _taken(name: str) -> AlreadyExists:
    return AlreadyExists(f"The group {name!r} exists already. Choose another name.", param="name")
