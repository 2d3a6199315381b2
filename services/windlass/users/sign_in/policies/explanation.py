"""Explanations of access: how somebody signed in, their groups and roles."""

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from windlass.api.users.v1 import sign_in_pb2 as pb
from windlass.core.clock import now_seconds
from windlass.core.db import Database
from windlass.core.errors import NotFound, PermissionDenied
from windlass.core.rpc.auth import Principal
from windlass.users.domain import valid_user
from windlass.users.identity.tables import identities, identity_providers
from windlass.users.scope import sees_organization
from windlass.users.session_strength.tables import sessions
from windlass.users.sign_in.policies.store import read_policy
from windlass.users.tables import (
    api_keys,
    group_members,
    groups,
    members,
    role_assignments,
    roles,
)

# Of each kind, in an answer.
MOST = 200


@dataclass(frozen=True, slots=True)
class _Person:
    """A person whose access is explained, and in which projects; None: in all."""

    organization_id: str
    user_id: str
    places: tuple[str, ...] | None = None

    def within(self, project_id: sa.ColumnElement[str]) -> sa.ColumnElement[bool]:
        """The condition that a row is of a place to tell of."""
        return sa.true() if self.places is None else project_id.in_(self.places)


class AccessExplanations:
    """Explains callers' access, and members' to who sees all of the organization."""

    def __init__(self, database: Database):
        self._database = database

    async def of(self, principal: Principal) -> pb.ExplainAccessResponse:
        """Explains how a caller has signed in, and what its groups and roles come from."""
        answer = pb.ExplainAccessResponse(weakened=principal.is_weakened)
        async with self._database.autocommit() as connection:
            claims = await _session(connection, sessions.c.id == principal.key_id, answer)
            # A key says nothing of projects that are not its own; a session is for all of them.
            places = None if answer.provider_id else ("", principal.project_id)
            person = _Person(principal.organization_id, principal.user_id, places)
            await _groups(connection, person, answer, claims)
            await _roles(connection, person, answer)
        return answer

    async def of_member(self, principal: Principal, user_id: str) -> pb.ExplainAccessResponse:
        """Explains the same of a person of the caller's organization; raises NotFound."""
        if not sees_organization(principal):
            raise PermissionDenied(
                "Only who sees all of the organization asks what the access of others comes from.",
                param="user_id",
            )
        answer = pb.ExplainAccessResponse()
        person = _Person(principal.organization_id, valid_user(user_id))
        async with self._database.autocommit() as connection:
            claims = await _last_sign_in(connection, person, answer)
            await _groups(connection, person, answer, claims)
            await _roles(connection, person, answer)
        if not answer.roles and not answer.groups and not answer.provider_id:
            raise NotFound(f"Nobody of the organization is {user_id}.", param="user_id")
        return answer


async def _last_sign_in(
    connection: AsyncConnection, person: _Person, answer: pb.ExplainAccessResponse
) -> dict[str, list[str]]:
    """Tells of the last of a person's sessions, or as whom an issuer knows them."""
    now = now_seconds()
    last = (
        sa.select(sessions.c.id)
        .join(api_keys, api_keys.c.id == sessions.c.id)
        .where(
            sessions.c.organization_id == person.organization_id,
            sessions.c.user_id == person.user_id,
            sessions.c.ends_at > now,
            sessions.c.idle_until > now,
            api_keys.c.revoked_at == 0,
        )
        .order_by(sessions.c.auth_at.desc(), sessions.c.id)
        .limit(1)
    )
    claims = await _session(connection, sessions.c.id == last.scalar_subquery(), answer)
    if answer.provider_id:
        policy = await read_policy(connection, person.organization_id)
        is_strong = policy.admits(acr=answer.acr, amr=answer.amr)
        answer.weakened = not is_strong or policy.is_over(answer.auth_at)
        return claims
    query = (
        sa.select(
            identities.c.provider_id,
            identities.c.subject,
            identity_providers.c.name,
            identity_providers.c.groups,
        )
        .join(identity_providers, identity_providers.c.id == identities.c.provider_id)
        .where(
            identities.c.organization_id == person.organization_id,
            identities.c.user_id == person.user_id,
        )
        .order_by(identities.c.created_at.desc(), identities.c.provider_id)
        .limit(1)
    )
    return _told(answer, (await connection.execute(query)).first())


async def _session(
    connection: AsyncConnection,
    which: sa.ColumnElement[bool],
    answer: pb.ExplainAccessResponse,
) -> dict[str, list[str]]:
    """Tells of a session; returns the claims that stand for groups."""
    query = (
        sa.select(sessions, identity_providers.c.name, identity_providers.c.groups)
        .join(identity_providers, identity_providers.c.id == sessions.c.provider_id)
        .where(which)
    )
    row = (await connection.execute(query)).first()
    if row is not None:
        answer.auth_at, answer.acr = row.auth_at, row.acr
        answer.amr.extend(row.amr)
    return _told(answer, row)


def _told(answer: pb.ExplainAccessResponse, row: Any) -> dict[str, list[str]]:
    """Tells of a provider and its subject; returns the claims that stand for groups."""
    claims: dict[str, list[str]] = defaultdict(list)
    if row is not None:
        answer.provider_id, answer.provider_name = row.provider_id, row.name
        answer.subject = row.subject
        for claim, group_id in row.groups.items():
            claims[group_id].append(claim)
    return claims


async def _groups(
    connection: AsyncConnection,
    person: _Person,
    answer: pb.ExplainAccessResponse,
    claims: dict[str, list[str]],
) -> None:
    query = (
        sa.select(groups.c.id, groups.c.name)
        .join(group_members, group_members.c.group_id == groups.c.id)
        .where(
            groups.c.organization_id == person.organization_id,
            group_members.c.user_id == person.user_id,
        )
    )
    for row in await connection.execute(query.order_by(groups.c.name).limit(MOST)):
        answer.groups.add(group_id=row.id, name=row.name, claims=claims.get(row.id, ()))


async def _roles(
    connection: AsyncConnection, person: _Person, answer: pb.ExplainAccessResponse
) -> None:
    held = sa.select(members.c.role, members.c.project_id).where(
        person.within(members.c.project_id),
        members.c.organization_id == person.organization_id,
        members.c.user_id == person.user_id,
    )
    for row in await connection.execute(held.order_by(members.c.project_id).limit(MOST)):
        answer.roles.add(name=row.role, project_id=row.project_id)
    given = role_assignments.c
    theirs = sa.select(group_members.c.group_id).where(group_members.c.user_id == person.user_id)
    query = (
        sa.select(roles.c.id, roles.c.name, given.project_id, given.group_id, given.ends_at)
        .join(role_assignments, given.role_id == roles.c.id)
        .where(
            given.organization_id == person.organization_id,
            sa.or_(given.user_id == person.user_id, given.group_id.in_(theirs)),
            person.within(given.project_id),
            sa.or_(given.ends_at == 0, given.ends_at > now_seconds()),
        )
    )
    for one in await connection.execute(query.order_by(roles.c.name).limit(MOST)):
        answer.roles.add(
            name=one.name,
            role_id=one.id,
            project_id=one.project_id,
            group_id=one.group_id,
            ends_at=one.ends_at,
        )
