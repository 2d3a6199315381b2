"""Every query on roles of tenants and on who has them."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from windlass.bounds import MAX_ROLES
from windlass.core.clock import now_seconds
from windlass.core.db import Database
from windlass.core.db.paging import by_creation
from windlass.core.errors import InvalidArgument
from windlass.core.rpc import audited
from windlass.users.keys.revocation import note, resting_on, take_turn
from windlass.users.roles.changes import (
    Change,
    GivenRole,
    T,
    found_role,
    holders_of,
    name_taken,
    role_of,
)
from windlass.users.roles.domain import CustomRole, RoleAssignment
from windlass.users.tables import role_assignments, roles


class RoleStore:
    """Roles that tenants make."""

    def __init__(self, database: Database):
        self._database = database

    async def create(self, role: CustomRole) -> CustomRole:
        """Stores a role; raises AlreadyExists, and InvalidArgument where there are too many."""
        here = sa.and_(
            roles.c.organization_id == role.organization_id,
            roles.c.project_id == role.project_id,
        )
        try:
            async with self._database.begin() as connection:
                await take_turn(connection, role.organization_id, of="roles")
                count = sa.select(sa.func.count()).select_from(roles).where(here)
                if (await connection.execute(count)).scalar_one() >= MAX_ROLES:
                    raise InvalidArgument(f"There may be {MAX_ROLES} roles.", param="name")
                await connection.execute(roles.insert().values(asdict(role)))
                audited.change(None, role, resource=role.id)
        except IntegrityError as error:
            raise name_taken(role.name) from error
        return role

    async def get(self, organization_id: str, role_id: str) -> CustomRole:
        """Returns one role of the organization or its projects; raises NotFound."""
        async with self._database.autocommit() as connection:
            return await found_role(connection, organization_id, role_id)

    async def list(
        self,
        organization_id: str,
        project_id: str,
        *,
        oldest_first: bool,
        after: str,
        limit: int,
    ) -> Sequence[CustomRole]:
        """Roles of exactly this scope, by their creation."""
        here = sa.and_(roles.c.organization_id == organization_id, roles.c.project_id == project_id)
        query = by_creation(
            roles.select().where(here),
            roles.c.created_at,
            roles.c.id,
            after=after,
            of=here,
            oldest_first=oldest_first,
        )
        async with self._database.autocommit() as connection:
            return [role_of(row) for row in await connection.execute(query.limit(limit))]

    async def make(self, change: Change[T]) -> T:
        """Makes a change, all of it or nothing."""
        async with self._database.begin() as connection:
            return await change(connection)

    async def assignments(
        self,
        organization_id: str,
        project_id: str,
        *,
        role_id: str,
        user_id: str,
        group_id: str,
        after: tuple[str, str, str] | None,
        descending: bool,
        limit: int,
    ) -> Sequence[GivenRole]:
        """Roles that members and groups have in exactly this scope, by role and holder."""
        table = role_assignments.c
        query = (
            sa.select(*_labelled(role_assignments, "given_"), *_labelled(roles, "role_"))
            .join_from(role_assignments, roles, roles.c.id == table.role_id)
            .where(table.organization_id == organization_id, table.project_id == project_id)
            .where(sa.or_(table.ends_at == 0, table.ends_at > now_seconds()))
        )
        if role_id:
            query = query.where(table.role_id == role_id)
        if user_id:
            query = query.where(table.user_id == user_id)
        if group_id:
            query = query.where(table.group_id == group_id)
        order = (table.role_id, table.user_id, table.group_id)
        if after is not None:
            place, found = sa.tuple_(*order), sa.tuple_(*map(sa.literal, after))
            query = query.where(place < found if descending else place > found)
        query = query.order_by(*(one.desc() for one in order) if descending else order)
        async with self._database.autocommit() as connection:
            rows = (await connection.execute(query.limit(limit))).all()
        return [(_assignment(row, "given_"), role_of(row, "role_")) for row in rows]

    async def end_expired(self) -> int:
        """Removes what has ended, and has the keys that lost by it asked about again."""
        ends = role_assignments.c.ends_at
        statement = (
            role_assignments.delete()
            .where(ends > 0, ends <= now_seconds())
            .returning(role_assignments)
        )
        async with self._database.begin() as connection:
            ended = (await connection.execute(statement)).all()
            if ended:
                await note(connection, resting_on(await holders_of(connection, ended)))
        return len(ended)

    async def next_end(self) -> int:
        """The earliest end of what anybody was given, in Unix seconds; 0 where nothing ends."""
        ends = role_assignments.c.ends_at
        query = sa.select(ends).where(ends > 0).order_by(ends).limit(1)
        async with self._database.autocommit() as connection:
            return int((await connection.execute(query)).scalar() or 0)


def _labelled(table: sa.Table, prefix: str) -> list[sa.Label[Any]]:
    return [column.label(prefix + column.name) for column in table.c]


def _assignment(row: Any, prefix: str) -> RoleAssignment:
    return RoleAssignment(
        **{name: getattr(row, prefix + name) for name in RoleAssignment.__slots__}
    )
