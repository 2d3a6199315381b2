"""People who ask and decide, as the database has them within a transaction."""

from collections.abc import Iterable

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from windlass.core.errors import PermissionDenied
from windlass.core.rpc.auth import Principal
from windlass.policy import narrowed, permissions_of
from windlass.users.domain import SERVICE_ACCOUNT, SESSION
from windlass.users.elevations.domain import Decider, Elevation, may_give
from windlass.users.keys.store import key_of, require_live
from windlass.users.roles.domain import CustomRole
from windlass.users.standing import (
    Worth,
    granted,
    people_behind,
    standings,
    worth,
    worth_of_session,
)
from windlass.users.tables import api_keys, members


async def decider(
    connection: AsyncConnection, principal: Principal, elevation: Elevation
) -> Decider:
    """Returns the caller with the power that they and their key have in the elevation's project.

    It is what they have now, not when it was cached, and not what they have in the project of
    their call. Raises PermissionDenied for a service account and for a key of another project, and
    Unauthenticated for a key that ended.
    """
    row = (
        await connection.execute(api_keys.select().where(api_keys.c.id == principal.key_id))
    ).first()
    if row is None:
        raise PermissionDenied("Only members decide on what others ask for.")
    key = key_of(row)
    require_live(key)
    if key.project_id not in ("", elevation.project_id):
        raise PermissionDenied("A key of a project decides on nothing outside that project.")
    is_account = sa.exists().where(
        members.c.organization_id == principal.organization_id,
        members.c.user_id == principal.user_id,
        members.c.kind == SERVICE_ACCOUNT,
    )
    if await connection.scalar(sa.select(is_account)):
        raise PermissionDenied("A service account decides on nothing that people ask for.")
    if key.kind == SESSION:
        found: Worth | None = await worth_of_session(connection, key, elevation.project_id)
    else:
        found = await worth(connection, key)
    permissions = narrowed(found.permissions, key.scopes) if found else frozenset[str]()
    if principal.is_weakened:
        permissions &= principal.permissions
    power = permissions & permissions_of(found.roles) if found else frozenset[str]()
    return Decider(principal.user_id, power, permissions, frozenset(people_behind(key)))


async def askers_of(
    connection: AsyncConnection, organization_id: str, project_id: str, user_id: str
) -> set[str]:
    """Returns the kinds of askers that a person is in a project, or in all of the organization."""
    query = sa.select(members.c.project_id).where(
        members.c.organization_id == organization_id,
        members.c.project_id.in_({"", project_id}),
        members.c.user_id == user_id,
        members.c.kind != SERVICE_ACCOUNT,
    )
    scopes = set((await connection.execute(query)).scalars())
    found = {"organization"} if scopes else set[str]()
    return found | {"project"} if scopes - {""} else found


async def still_able(
    connection: AsyncConnection, role: CustomRole, project_id: str, people: Iterable[str]
) -> tuple[str, ...]:
    """Returns those of some people who may give a role in a project now."""
    people, scope = list(people), (role.organization_id, project_id)
    known = await standings(connection, people, within=scope)
    given = await granted(connection, people, scope)
    powers = {person: permissions_of(known[person].roles(scope)) for person in people}
    return tuple(
        person
        for person in people
        if may_give(role, powers[person], powers[person] | given[person])
    )
