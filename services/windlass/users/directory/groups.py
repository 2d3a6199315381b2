"""Every change of groups by an organization's directory."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY, insert
from sqlalchemy.ext.asyncio import AsyncConnection

from windlass.api.users.v1 import directory_pb2 as pb
from windlass.bounds import MAX_GROUP_MEMBERS
from windlass.core.clock import now_seconds
from windlass.core.db import Database
from windlass.core.errors import InvalidArgument
from windlass.users.directory import filters
from windlass.users.directory.domain import require_version
from windlass.users.directory.settings import require_directory
from windlass.users.domain import SERVICE_ACCOUNT
from windlass.users.groups.store import (
    MemberGroup,
    change_group,
    found_group,
    insert_group,
    people_of,
    permissions_of_group,
    remove_group,
)
from windlass.users.keys.revocation import note, resting_on
from windlass.users.tables import group_members, groups, members, people

# Is given the permissions of all roles that a group has, and may raise.
Approve = Callable[[frozenset[str]], None]


@dataclass(frozen=True, slots=True)
class GroupChange:
    """A change of a group; what is None stays."""

    name: str | None = None
    external_id: str | None = None
    # Everybody who is not added leaves.
    replaces: bool = False
    add: frozenset[str] = frozenset()
    remove: frozenset[str] = frozenset()


class DirectoryGroupStore:
    """Groups of organizations, as their directories know them: their people, no service accounts.

    Each call raises PermissionDenied where no directory provisions the organization.
    """

    def __init__(self, database: Database):
        self._database = database

    async def create(self, group: MemberGroup, user_ids: Collection[str]) -> MemberGroup:
        """Stores a group and its people; raises AlreadyExists, InvalidArgument."""
        async with self._database.begin() as connection:
            await require_directory(connection, group.organization_id)
            await insert_group(connection, group)
            await _add(connection, group, frozenset(user_ids))
        return group

    async def get(self, organization_id: str, group_id: str) -> MemberGroup:
        """Returns one group; raises NotFound."""
        async with self._database.autocommit() as connection:
            await require_directory(connection, organization_id)
            return await found_group(connection, organization_id, group_id)

    async def list(
        self,
        organization_id: str,
        request: pb.FindDirectoryGroupsRequest,
        *,
        offset: int,
        limit: int,
    ) -> tuple[Sequence[MemberGroup], int]:
        """Groups that match, and how many there are; raises InvalidArgument."""
        attributes = filters.of_groups()
        where = [groups.c.organization_id == organization_id]
        if request.HasField("filter"):
            where.append(attributes.condition(request.filter))
        order: Sequence[sa.ColumnElement[Any]] = [groups.c.created_at, groups.c.id]
        if request.sort_by:
            order = [attributes.order(request.sort_by, descending=request.descending), *order]
        columns = [groups.c[name] for name in MemberGroup.__slots__]
        count = sa.select(sa.func.count()).select_from(groups).where(*where)
        page = sa.select(*columns).where(*where).order_by(*order).offset(offset).limit(limit)
        async with self._database.autocommit() as connection:
            await require_directory(connection, organization_id)
            found = [MemberGroup(*row) for row in await connection.execute(page)]
            if found and len(found) < limit:
                return found, offset + len(found)
            return found, int((await connection.execute(count)).scalar_one())

    async def members(
        self, organization_id: str, group_id: str, *, after: str, limit: int
    ) -> Sequence[str]:
        """People of a group, by their ids; raises NotFound."""
        async with self._database.autocommit() as connection:
            await require_directory(connection, organization_id)
            await found_group(connection, organization_id, group_id)
            query = (
                sa.select(group_members.c.user_id)
                .where(
                    group_members.c.group_id == group_id,
                    group_members.c.user_id > after,
                    group_members.c.user_id.not_in(_accounts(organization_id)),
                )
                .order_by(group_members.c.user_id)
                .limit(limit)
            )
            return (await connection.execute(query)).scalars().all()

    async def change(
        self,
        organization_id: str,
        group_id: str,
        change: GroupChange,
        approve: Approve,
        *,
        version: int | None,
    ) -> MemberGroup:
        """Changes a group, and takes over one that was there before.

        Who is added twice, or is not there when removed, changes nothing. Raises NotFound,
        AlreadyExists for the name, InvalidArgument for people that the organization does not
        know, and FailedPrecondition for another version.
        """
        async with self._database.begin() as connection:
            await require_directory(connection, organization_id)
            group = await found_group(connection, organization_id, group_id, locked=True)
            require_version(group.version, version)
            approve(await permissions_of_group(connection, group_id))
            changed = await _remove(connection, group, change)
            changed |= await _add(connection, group, change.add)
            values = _differences(group, change)
            if not changed and not values:
                return group
            if changed:
                await note(connection, resting_on(changed))
            return await change_group(connection, group_id, **values)

    async def delete(
        self, organization_id: str, group_id: str, approve: Approve, *, version: int | None
    ) -> None:
        """Removes a group, and takes its roles from all who are in it; raises NotFound."""
        async with self._database.begin() as connection:
            await require_directory(connection, organization_id)
            group = await found_group(connection, organization_id, group_id, locked=True)
            require_version(group.version, version)
            approve(await permissions_of_group(connection, group_id))
            await remove_group(connection, group_id)


def _differences(group: MemberGroup, change: GroupChange) -> dict[str, str | int]:
    wanted: dict[str, str | int | None] = {"name": change.name, "external_id": change.external_id}
    values = {
        name: value
        for name, value in wanted.items()
        if value is not None and value != getattr(group, name)
    }
    return values if group.managed_at else values | {"managed_at": now_seconds()}


def _accounts(organization_id: str) -> sa.Select[tuple[str]]:
    return sa.select(members.c.user_id).where(
        members.c.organization_id == organization_id, members.c.kind == SERVICE_ACCOUNT
    )


async def _remove(connection: AsyncConnection, group: MemberGroup, change: GroupChange) -> set[str]:
    """Takes people out of a group; returns who was in it."""
    which = group_members.c.user_id.in_(change.remove)
    if change.replaces:
        which = group_members.c.user_id.not_in(change.add)
    elif not change.remove:
        return set()
    statement = (
        group_members.delete()
        .where(
            group_members.c.group_id == group.id,
            which,
            group_members.c.user_id.not_in(_accounts(group.organization_id)),
        )
        .returning(group_members.c.user_id)
    )
    return set((await connection.execute(statement)).scalars())


async def _add(
    connection: AsyncConnection, group: MemberGroup, user_ids: frozenset[str]
) -> set[str]:
    """Adds people to a group; returns who was not in it."""
    if not user_ids:
        return set()
    given = sa.func.unnest(sa.cast(sorted(user_ids), ARRAY(sa.Text))).column_valued("given")
    known = sa.union(
        sa.select(members.c.user_id).where(
            members.c.organization_id == group.organization_id, members.c.kind != SERVICE_ACCOUNT
        ),
        sa.select(people.c.user_id).where(people.c.organization_id == group.organization_id),
    )
    query = sa.select(given).where(given.not_in(known)).limit(1)
    if stranger := (await connection.execute(query)).scalar():
        raise InvalidArgument(
            f"The organization does not know {stranger!r}. Provision people before the groups "
            "that they are in.",
            param="members",
        )
    rows = sa.select(sa.literal(group.id), given, sa.literal(now_seconds()))
    statement = (
        insert(group_members)
        .from_select(["group_id", "user_id", "added_at"], rows)
        .on_conflict_do_nothing()
        .returning(group_members.c.user_id)
    )
    added = set((await connection.execute(statement)).scalars())
    if added and len(await people_of(connection, group.id)) > MAX_GROUP_MEMBERS:
        message = f"A group has at most {MAX_GROUP_MEMBERS} members."
        raise InvalidArgument(message, param="members")
    return added
