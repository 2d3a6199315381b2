"""Changes of roles and of who has them, each within its caller's transaction."""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import asdict, replace
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from windlass.core.errors import AlreadyExists, InvalidArgument, NotFound
from windlass.core.rpc import audited
from windlass.users.elevation_ends import close_elevations, withdraw_requests
from windlass.users.keys.revocation import note, resting_on
from windlass.users.roles.domain import CustomRole, RoleAssignment, unknown_role
from windlass.users.tables import (
    elevations,
    group_members,
    groups,
    members,
    role_assignments,
    roles,
)

_KEY = ["organization_id", "project_id", "role_id", "user_id", "group_id"]
T = TypeVar("T")
Change = Callable[[AsyncConnection], Awaitable[T]]
# Is asked about a role as it stands, and may raise.
Approve = Callable[[CustomRole], None]
GivenRole = tuple[RoleAssignment, CustomRole]


async def update_role(
    connection: AsyncConnection,
    organization_id: str,
    role_id: str,
    change: Callable[[CustomRole], CustomRole],
) -> CustomRole:
    """Changes a role; keys of those who have it are asked about again.

    `change` is given the role as it stands, and may raise. Raises NotFound, AlreadyExists.
    """
    before = await found_role(connection, organization_id, role_id, locked=True)
    changed = change(before)
    audited.change(before, changed)
    which = roles.c.id == role_id
    try:
        await connection.execute(roles.update().where(which).values(asdict(changed)))
    except IntegrityError as error:
        raise name_taken(changed.name) from error
    if replace(changed, updated_at=before.updated_at) != before:
        await withdraw_requests(connection, role_id)
    if changed.permissions != before.permissions:
        await _tell_holders(connection, role_id)
    return changed


async def delete_role(
    connection: AsyncConnection, organization_id: str, role_id: str, approve: Approve
) -> CustomRole:
    """Removes a role, and takes it from all who have it; raises NotFound."""
    role = await found_role(connection, organization_id, role_id, locked=True)
    approve(role)
    audited.change(role, None)
    await _tell_holders(connection, role_id)
    await close_elevations(connection, elevations.c.role_id == role_id)
    where = role_assignments.c.role_id == role_id
    await connection.execute(role_assignments.delete().where(where))
    await connection.execute(roles.delete().where(roles.c.id == role_id))
    return role


async def assign_role(
    connection: AsyncConnection, assignment: RoleAssignment, approve: Approve
) -> GivenRole:
    """Gives a role to a member or a group, or another end to one that has it.

    Raises NotFound, and InvalidArgument for who is no member and for a role of another project.
    """
    organization_id, project_id = assignment.organization_id, assignment.project_id
    role = await found_role(connection, organization_id, assignment.role_id, locked=True)
    approve(role)
    if role.project_id not in ("", project_id):
        raise InvalidArgument("The role is of another project.", param="role_id")
    people = await _people(connection, assignment)
    await _close_elevations(connection, assignment)
    values = asdict(assignment)
    audited.change(await _given(connection, assignment), assignment)
    statement = insert(role_assignments).values(values)
    changed = {name: values[name] for name in ("ends_at", "assigned_by")}
    await connection.execute(statement.on_conflict_do_update(index_elements=_KEY, set_=changed))
    await note(connection, resting_on(people))
    return assignment, role


async def unassign_role(
    connection: AsyncConnection, assignment: RoleAssignment, approve: Approve
) -> CustomRole:
    """Takes a role from a member or a group; idempotent; raises NotFound."""
    role = await found_role(connection, assignment.organization_id, assignment.role_id, locked=True)
    approve(role)
    audited.change(await _given(connection, assignment), None)
    await connection.execute(role_assignments.delete().where(*_at(assignment)))
    await _close_elevations(connection, assignment)
    await note(connection, resting_on(await holders_of(connection, [assignment])))
    return role


def _at(assignment: RoleAssignment) -> list[sa.ColumnElement[bool]]:
    return [role_assignments.c[name] == getattr(assignment, name) for name in _KEY]


async def _given(connection: AsyncConnection, assignment: RoleAssignment) -> RoleAssignment | None:
    """The assignment of that role to that holder there, if there is one."""
    query = role_assignments.select().where(*_at(assignment))
    row = (await connection.execute(query)).first()
    if row is None:
        return None
    return RoleAssignment(**{name: getattr(row, name) for name in RoleAssignment.__slots__})


async def found_role(
    connection: AsyncConnection, organization_id: str, role_id: str, *, locked: bool = False
) -> CustomRole:
    """Returns one role of the organization or its projects; raises NotFound."""
    query = roles.select().where(roles.c.id == role_id, roles.c.organization_id == organization_id)
    row = (await connection.execute(query.with_for_update() if locked else query)).first()
    if row is None:
        raise unknown_role(role_id)
    return role_of(row)


async def _close_elevations(connection: AsyncConnection, assignment: RoleAssignment) -> None:
    """Closes what a member asked for, who is given the role otherwise, or loses it."""
    await close_elevations(
        connection,
        elevations.c.role_id == assignment.role_id,
        elevations.c.project_id == assignment.project_id,
        elevations.c.user_id == assignment.user_id,
    )


async def _tell_holders(connection: AsyncConnection, role_id: str) -> None:
    query = role_assignments.select().where(role_assignments.c.role_id == role_id)
    given = (await connection.execute(query)).all()
    if given:
        await note(connection, resting_on(await holders_of(connection, given)))


async def holders_of(connection: AsyncConnection, given: Iterable[Any]) -> set[str]:
    """The people who have something that they, or groups, were given."""
    found, among = set[str](), set[str]()
    for one in given:
        found.add(one.user_id)
        among.add(one.group_id)
    query = sa.select(group_members.c.user_id).where(group_members.c.group_id.in_(among - {""}))
    return (found | set((await connection.execute(query)).scalars())) - {""}


async def _people(connection: AsyncConnection, assignment: RoleAssignment) -> set[str]:
    """Everybody who gets a role by this; raises NotFound, InvalidArgument for no member."""
    organization_id, user_id = assignment.organization_id, assignment.user_id
    if assignment.group_id:
        query = groups.select().where(
            groups.c.id == assignment.group_id, groups.c.organization_id == organization_id
        )
        # Kept until the end of the transaction: who joins it meanwhile is asked for its roles.
        if (await connection.execute(query.with_for_update())).first() is None:
            raise NotFound(f"No group {assignment.group_id!r}.", param="group_id")
        return await holders_of(connection, [assignment])
    membership = members.select().where(
        members.c.organization_id == organization_id,
        members.c.project_id.in_({"", assignment.project_id}),
        members.c.user_id == user_id,
    )
    # Kept as well: who removes the member takes this role too.
    if (await connection.execute(membership.with_for_update(read=True))).first() is None:
        raise InvalidArgument(f"{user_id} is not a member. Add them first.", param="user_id")
    return {user_id}


def role_of(row: Any, prefix: str = "") -> CustomRole:
    """The role of a row, whose columns begin with a prefix."""
    values = {name: getattr(row, prefix + name) for name in CustomRole.__slots__}
    return CustomRole(**values | {"permissions": tuple(values["permissions"])})


def name_taken(name: str) -> AlreadyExists:
    """The error of a name that another role of the same scope has."""
    return AlreadyExists(f"The role {name!r} exists already. Choose another name.", param="name")
