"""Every change of people by an organization's directory."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from windlass.api.users.v1 import directory_pb2 as pb
from windlass.bounds import MAX_DIRECTORY_PEOPLE
from windlass.core.clock import now_ms, now_seconds
from windlass.core.db import Database
from windlass.core.errors import InvalidArgument
from windlass.core.rpc.auth import Principal
from windlass.policy import PLATFORM_ROLES
from windlass.users.directory import filters
from windlass.users.directory.domain import (
    Person,
    Profile,
    id_for,
    require_directory_power,
    require_version,
    taken_name,
    unknown_person,
)
from windlass.users.directory.known import KNOWN_PEOPLE, person_of
from windlass.users.directory.settings import disabled, require_directory
from windlass.users.domain import Member, require_role
from windlass.users.keys.revocation import end_where, note, resting_on, take_turn
from windlass.users.membership.departures import leave
from windlass.users.membership.owners import find_member, lock_owners, require_owner_left
from windlass.users.standing import held_roles
from windlass.users.tables import api_keys, members, people, roles

_ONE = sa.select(KNOWN_PEOPLE).where(KNOWN_PEOPLE.c.id == sa.bindparam("person_id"))
# Making these statements would cost as much as running them.
_IS_TAKEN = (
    "EXISTS (SELECT FROM users_people WHERE organization_id = :organization_id"
    " AND user_name <> '' AND lower(user_name) = lower(:user_name) AND user_id <> :but)"
    " OR EXISTS (SELECT FROM users_people WHERE organization_id = :organization_id"
    " AND user_name = '' AND lower(user_id) = lower(:user_name) AND user_id <> :but)"
    " OR EXISTS (SELECT FROM users_members member WHERE organization_id = :organization_id"
    " AND lower(user_id) = lower(:user_name) AND user_id <> :but AND NOT EXISTS (SELECT FROM"
    " users_people known WHERE known.organization_id = member.organization_id"
    " AND known.user_id = member.user_id))"
)
_TAKEN = sa.text(f"SELECT {_IS_TAKEN}")
# What is to be known before somebody is added. Nobody gets the id of another, whatever that one is
# called today, and no directory names who administers the platform.
_BEFORE = sa.text(
    "SELECT (SELECT role FROM users_directories WHERE id = :organization_id) AS role,"  # noqa: S608
    f" {_IS_TAKEN} AS is_taken,"
    " (SELECT count(*) >= :most FROM (SELECT FROM users_people"
    " WHERE organization_id = :organization_id LIMIT :most) known) AS is_full,"
    " EXISTS (SELECT FROM users_members WHERE user_id = :user_name"
    " AND role = ANY(CAST(:operators AS text[]))) OR EXISTS (SELECT FROM users_people"
    " WHERE organization_id = :organization_id AND user_id = :user_name)"
    " AS is_another"
)
# With the membership of a role; an empty one gives none.
_ADD = sa.text(
    "WITH person AS (INSERT INTO users_people (organization_id, user_id, user_name, external_id,"
    " attributes, email, name, deactivated_at, created_at, updated_at, managed_at, version) VALUES"
    " (:organization_id, :user_id, :user_name, :external_id, CAST(:attributes AS jsonb), :email,"
    " :name, :deactivated_at, :now, :now, :now, :version) RETURNING user_id)"
    " INSERT INTO users_members (organization_id, project_id, user_id, role, created_at, title)"
    " SELECT :organization_id, '', user_id, :role, :now, :name FROM person WHERE :role <> ''"
    " ON CONFLICT DO NOTHING"
)


class PeopleStore:
    """People of organizations, as their directories know them.

    Each call raises PermissionDenied where no directory provisions the organization, and for a
    person whose roles the caller's key could not give.
    """

    def __init__(self, database: Database):
        self._database = database

    async def create(self, principal: Principal, profile: Profile) -> Person:
        """Adds a person, with the membership that the organization chose.

        Raises AlreadyExists for a user name that somebody has.
        """
        organization_id = principal.organization_id
        asked = {
            "organization_id": organization_id,
            "user_name": profile.user_name,
            "but": "",
            "most": MAX_DIRECTORY_PEOPLE,
            "operators": sorted(PLATFORM_ROLES),
        }
        async with self._database.autocommit() as connection:
            before = (await connection.execute(_BEFORE, asked)).one()
            if before.role is None:
                raise disabled()
            if before.role:
                require_role(principal.roles, before.role)
            if before.is_taken:
                raise taken_name(profile.user_name)
            if before.is_full:
                raise InvalidArgument(
                    f"A directory provisions at most {MAX_DIRECTORY_PEOPLE} people.",
                    param="user_name",
                )
            person_id = id_for(profile.user_name, is_free=not before.is_another)
            now = now_seconds()
            # Beyond all of somebody before with the same id: a change that was meant for them, and
            # comes late, is of another version.
            version = now_ms()
            row = {
                **_values(profile),
                "version": version,
                "attributes": json.dumps(profile.attributes),
                "organization_id": organization_id,
                "user_id": person_id,
                "deactivated_at": 0 if profile.is_active else now,
                "now": now,
                "role": before.role,
            }
            await _stored(connection, _ADD, profile, row)
        return Person(person_id, profile, now, version, now, now)

    async def get(self, organization_id: str, person_id: str) -> Person:
        """Returns one person; raises NotFound."""
        async with self._database.autocommit() as connection:
            await require_directory(connection, organization_id)
            return await _found(connection, organization_id, person_id)

    async def replace(
        self, principal: Principal, person_id: str, profile: Profile, *, version: int | None
    ) -> tuple[Person, list[str]]:
        """Sets what is said of a person, and takes over one who was there before.

        One who becomes inactive loses the credentials in the organization, whose ids are returned
        too. Raises NotFound, AlreadyExists for the name, and FailedPrecondition for the last owner
        or another version.
        """
        organization_id = principal.organization_id
        async with self._database.begin() as connection:
            await require_directory(connection, organization_id)
            await lock_owners(connection, organization_id)
            person = await _found(connection, organization_id, person_id)
            require_version(person.version, version)
            await _require_power(connection, principal, person_id)
            if person.managed_at and person.profile == profile:
                return person, []
            await _require_free(connection, organization_id, profile.user_name, but=person_id)
            if person.profile.is_active != profile.is_active:
                await _require_owner_left(connection, organization_id, person_id, profile)
            await _put(connection, organization_id, person, profile)
            ended: list[str] = []
            if person.profile.is_active and not profile.is_active:
                ended = await _end_credentials(connection, organization_id, person_id)
            if person.profile.is_active != profile.is_active:
                await note(connection, resting_on([person_id]))
            return await _found(connection, organization_id, person_id), ended

    async def delete(
        self, principal: Principal, person_id: str, *, version: int | None
    ) -> list[str]:
        """Removes a person from the organization; returns the ids of the keys that end.

        Raises NotFound, and FailedPrecondition for the last owner or another version.
        """
        organization_id = principal.organization_id
        async with self._database.begin() as connection:
            await require_directory(connection, organization_id)
            await lock_owners(connection, organization_id)
            person = await _found(connection, organization_id, person_id)
            require_version(person.version, version)
            await _require_power(connection, principal, person_id)
            # The directory's own key may rest on them: who leaves leaves all the same.
            return await leave(connection, Member(organization_id, "", person_id, "", 0), by_key="")

    async def list(
        self, organization_id: str, request: pb.FindPeopleRequest, *, offset: int, limit: int
    ) -> tuple[Sequence[Person], int]:
        """People who match, and how many there are; raises InvalidArgument."""
        known, own = KNOWN_PEOPLE, {"organization_id": organization_id}
        attributes = filters.of_people()
        query = sa.select(known)
        if request.HasField("filter"):
            query = query.where(attributes.condition(request.filter))
        order: Sequence[sa.ColumnElement[Any]] = [known.c.created_at, known.c.id]
        if request.sort_by:
            order = [attributes.order(request.sort_by, descending=request.descending), *order]
        count = sa.select(sa.func.count()).select_from(query.subquery())
        async with self._database.autocommit() as connection:
            await require_directory(connection, organization_id)
            page = query.order_by(*order).offset(offset).limit(limit)
            found = [person_of(row) for row in await connection.execute(page, own)]
            if found and len(found) < limit:
                return found, offset + len(found)
            return found, int((await connection.execute(count, own)).scalar_one())


async def _found(connection: AsyncConnection, organization_id: str, person_id: str) -> Person:
    own = {"organization_id": organization_id, "person_id": person_id}
    row = (await connection.execute(_ONE, own)).first()
    if row is None:
        raise unknown_person(person_id)
    return person_of(row)


async def _require_free(
    connection: AsyncConnection, organization_id: str, user_name: str, *, but: str
) -> None:
    """Raises AlreadyExists where another has the name, or had it first, a service account too."""
    found = {"organization_id": organization_id, "user_name": user_name, "but": but}
    if await connection.scalar(_TAKEN, found):
        raise taken_name(user_name)


async def _require_power(connection: AsyncConnection, principal: Principal, person_id: str) -> None:
    """Raises PermissionDenied for somebody with a role that the caller's key could not give."""
    query = sa.select(members.c.role).where(
        members.c.organization_id == principal.organization_id, members.c.user_id == person_id
    )
    for role in sorted(set((await connection.execute(query)).scalars())):
        require_role(principal.roles, role)
    held = held_roles(principal.organization_id)
    of_roles = (
        sa.select(roles.c.permissions)
        .join(held, held.c.role_id == roles.c.id)
        .where(held.c.user_id == person_id)
    )
    found = (await connection.execute(of_roles)).scalars()
    require_directory_power(principal, {one for permissions in found for one in permissions})


async def _require_owner_left(
    connection: AsyncConnection, organization_id: str, person_id: str, profile: Profile
) -> None:
    """Raises FailedPrecondition when the organization would lose its last owner who is active."""
    member = await find_member(connection, Member(organization_id, "", person_id, "", 0))
    if member is not None and not profile.is_active:
        await require_owner_left(connection, member, becoming="")


async def _put(
    connection: AsyncConnection, organization_id: str, person: Person, profile: Profile
) -> None:
    now = now_seconds()
    row = _values(profile) | {
        "managed_at": person.managed_at or now,
        "version": person.version + 1,
        "updated_at": now,
    }
    if person.profile.is_active != profile.is_active:
        row["deactivated_at"] = 0 if profile.is_active else now
    key = {"organization_id": organization_id, "user_id": person.id}
    statement = insert(people).values(created_at=person.created_at, **key, **row)
    await _stored(
        connection,
        statement.on_conflict_do_update(index_elements=list(key), set_=row),
        profile,
    )
    await connection.execute(
        members.update()
        .where(members.c.organization_id == organization_id, members.c.user_id == person.id)
        .values(title=profile.title)
    )


async def _stored(
    connection: AsyncConnection,
    statement: sa.Executable,
    profile: Profile,
    row: Mapping[str, Any] | None = None,
) -> None:
    try:
        await connection.execute(statement, row)
    except IntegrityError as error:
        raise taken_name(profile.user_name) from error


async def _end_credentials(
    connection: AsyncConnection, organization_id: str, person_id: str
) -> list[str]:
    await take_turn(connection, organization_id)
    own = sa.and_(api_keys.c.organization_id == organization_id, api_keys.c.user_id == person_id)
    # Again, for one that was made while the first waited for it.
    ended: list[str] = []
    while some := await end_where(connection, own):
        ended += some
    return ended


def _values(profile: Profile) -> dict[str, Any]:
    return {
        "user_name": profile.user_name,
        "external_id": profile.external_id,
        "attributes": profile.attributes,
        "email": profile.email,
        "name": profile.title,
    }
