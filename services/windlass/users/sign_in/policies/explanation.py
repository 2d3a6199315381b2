"""Explanations of access: how somebody signed in, their groups and roles."""

from collections import defaultdict

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from windlass.api.users.v1 import sign_in_pb2 as pb
from windlass.core.clock import now_seconds
from windlass.core.db import Database
from windlass.core.rpc.auth import Principal
from windlass.users.identity.tables import identity_providers
from windlass.users.session_strength.tables import sessions
from windlass.users.tables import group_members, groups, members, role_assignments, roles

# Of each kind, in an answer.
MOST = 200


class AccessExplanations:
    """Explains callers' access."""

    def __init__(self, database: Database):
        self._database = database

    async def of(self, principal: Principal) -> pb.ExplainAccessResponse:
        """Explains how a caller has signed in, and what its groups and roles come from."""
        answer = pb.ExplainAccessResponse(weakened=principal.is_weakened)
        async with self._database.autocommit() as connection:
            claims = await _session(connection, principal, answer)
            await _groups(connection, principal, answer, claims)
            await _roles(connection, principal, answer)
        return answer


async def _session(
    connection: AsyncConnection, principal: Principal, answer: pb.ExplainAccessResponse
) -> dict[str, list[str]]:
    """Tells of the caller's session; returns the claims that stand for groups."""
    query = (
        sa.select(sessions, identity_providers.c.name, identity_providers.c.groups)
        .join(identity_providers, identity_providers.c.id == sessions.c.provider_id)
        .where(sessions.c.id == principal.key_id)
    )
    row = (await connection.execute(query)).first()
    claims: dict[str, list[str]] = defaultdict(list)
    if row is not None:
        answer.provider_id, answer.provider_name = row.provider_id, row.name
        answer.subject, answer.auth_at, answer.acr = row.subject, row.auth_at, row.acr
        answer.amr.extend(row.amr)
        for claim, group_id in row.groups.items():
            claims[group_id].append(claim)
    return claims


async def _groups(
    connection: AsyncConnection,
    principal: Principal,
    answer: pb.ExplainAccessResponse,
    claims: dict[str, list[str]],
) -> None:
    query = (
        sa.select(groups.c.id, groups.c.name)
        .join(group_members, group_members.c.group_id == groups.c.id)
        .where(
            groups.c.organization_id == principal.organization_id,
            group_members.c.user_id == principal.user_id,
        )
    )
    for row in await connection.execute(query.order_by(groups.c.name).limit(MOST)):
        answer.groups.add(group_id=row.id, name=row.name, claims=claims.get(row.id, ()))


async def _roles(
    connection: AsyncConnection, principal: Principal, answer: pb.ExplainAccessResponse
) -> None:
    # A key says nothing of projects that are not its own; a session is for all of them.
    here = sa.true() if answer.provider_id else members.c.project_id.in_(("", principal.project_id))
    held = sa.select(members.c.role, members.c.project_id).where(
        here,
        members.c.organization_id == principal.organization_id,
        members.c.user_id == principal.user_id,
    )
    for row in await connection.execute(held.order_by(members.c.project_id).limit(MOST)):
        answer.roles.add(name=row.role, project_id=row.project_id)
    given = role_assignments.c
    mine = sa.select(group_members.c.group_id).where(group_members.c.user_id == principal.user_id)
    query = (
        sa.select(roles.c.id, roles.c.name, given.project_id, given.group_id, given.ends_at)
        .join(role_assignments, given.role_id == roles.c.id)
        .where(
            given.organization_id == principal.organization_id,
            sa.or_(given.user_id == principal.user_id, given.group_id.in_(mine)),
            sa.true() if answer.provider_id else given.project_id.in_(("", principal.project_id)),
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
