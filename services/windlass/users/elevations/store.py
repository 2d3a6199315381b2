"""Every query on roles that members asked for."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, replace
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from windlass.bounds import MAX_DAILY_REQUESTS
from windlass.core.clock import now_seconds
from windlass.core.db import Database
from windlass.core.db.paging import newest_first
from windlass.core.errors import AlreadyExists, NotFound, ResourceExhausted
from windlass.core.rpc.auth import Principal
from windlass.users.elevations.deciders import askers_of
from windlass.users.elevations.domain import (
    PENDING,
    WITHDRAWN,
    Elevation,
    closed,
    unknown_elevation,
    valid_seconds,
)
from windlass.users.roles.changes import found_role, role_of
from windlass.users.roles.domain import CustomRole, unknown_role
from windlass.users.tables import elevations, role_assignments, roles

DAY_SECONDS = 86400
# Is given a request as it stands, and returns it as it becomes; may raise.
Decision = Callable[[AsyncConnection, Elevation, CustomRole], Awaitable[Elevation]]


class ElevationStore:
    """Requests for roles. Decisions lock the role first: they and its changes take turns."""

    def __init__(self, database: Database):
        self._database = database

    async def request(self, asked: Elevation) -> Elevation:
        """Stores a request; the same that is pending answers a repeat.

        Raises NotFound for a role that the person may not ask for, AlreadyExists for one that
        they have or ask for otherwise, and ResourceExhausted for too many in a day.
        """
        organization_id, project_id = asked.organization_id, asked.project_id
        async with self._database.begin() as connection:
            # First, so that a role of another project takes no longer than one that never was.
            askers = await askers_of(connection, organization_id, project_id, asked.user_id)
            role = await found_role(connection, organization_id, asked.role_id, locked=True)
            if role.project_id not in ("", project_id) or role.elevation_askers not in askers:
                raise unknown_role(asked.role_id)
            valid_seconds(asked.seconds, role)
            if pending := await _pending(connection, asked):
                if (pending.reason, pending.seconds) == (asked.reason, asked.seconds):
                    return pending
                raise AlreadyExists(
                    f"You asked for this role already: withdraw {pending.id} first.",
                    param="role_id",
                )
            await _require_need(connection, asked)
            asked = replace(asked, approvals=role.elevation_approvals)
            await connection.execute(elevations.insert().values(asdict(asked)))
        return asked

    async def get(self, organization_id: str, elevation_id: str) -> Elevation:
        """Returns one request of the organization or its projects; raises NotFound."""
        async with self._database.autocommit() as connection:
            return await _found(connection, organization_id, elevation_id)

    async def list(
        self,
        organization_id: str,
        project_id: str,
        *,
        user_id: str,
        state: str,
        after: str,
        limit: int,
    ) -> Sequence[Elevation]:
        """Requests of exactly this scope, the newest first; where given, of one person."""
        table = elevations.c
        here = sa.and_(table.organization_id == organization_id, table.project_id == project_id)
        query = elevations.select().where(here)
        if user_id:
            query = query.where(table.user_id == user_id)
        if state:
            query = query.where(_state() == state)
        query = newest_first(query, table.created_at, table.id, after=after, of=here)
        async with self._database.autocommit() as connection:
            return [_elevation(row) for row in await connection.execute(query.limit(limit))]

    async def requestable(
        self, organization_id: str, project_id: str, user_id: str, *, after: str, limit: int
    ) -> Sequence[CustomRole]:
        """Roles that somebody may ask for in this scope, by their ids."""
        async with self._database.autocommit() as connection:
            askers = await askers_of(connection, organization_id, project_id, user_id)
            query = (
                roles.select()
                .where(
                    roles.c.organization_id == organization_id,
                    roles.c.project_id.in_({"", project_id}),
                    roles.c.elevation_askers.in_(askers),
                    roles.c.id > after,
                )
                .order_by(roles.c.id)
            )
            return [role_of(row) for row in await connection.execute(query.limit(limit))]

    async def decide(
        self, principal: Principal, elevation_id: str, decision: Decision
    ) -> Elevation:
        """Makes of a request what a decision says, while neither it nor its role changes."""
        organization_id = principal.organization_id
        async with self._database.begin() as connection:
            seen = await _found(connection, organization_id, elevation_id)
            try:
                role = await found_role(connection, organization_id, seen.role_id, locked=True)
            except NotFound as error:
                raise closed(seen, now_seconds()) from error
            one = await _found(connection, organization_id, elevation_id, locked=True)
            decided = await decision(connection, one, role)
            if decided != one:
                await _write(connection, decided)
        return decided

    async def withdraw(self, organization_id: str, user_id: str, elevation_id: str) -> Elevation:
        """Withdraws a request of this person's; idempotent; raises NotFound for another's."""
        now = now_seconds()
        async with self._database.begin() as connection:
            one = await _found(connection, organization_id, elevation_id, locked=True)
            if one.user_id != user_id:
                raise unknown_elevation(elevation_id)
            if one.state == WITHDRAWN:
                return one
            if one.state_at(now) != PENDING:
                raise closed(one, now)
            withdrawn = replace(one, state=WITHDRAWN, closed_at=now)
            await _write(connection, withdrawn)
        return withdrawn


async def _pending(connection: AsyncConnection, asked: Elevation) -> Elevation | None:
    query = elevations.select().where(
        elevations.c.role_id == asked.role_id,
        elevations.c.project_id == asked.project_id,
        elevations.c.user_id == asked.user_id,
        _state() == PENDING,
    )
    row = (await connection.execute(query)).first()
    return _elevation(row) if row else None


async def _require_need(connection: AsyncConnection, asked: Elevation) -> None:
    """Raises AlreadyExists for who has the role, and ResourceExhausted for who asks all day."""
    given = role_assignments.c
    has = sa.exists().where(
        given.organization_id == asked.organization_id,
        given.project_id.in_({"", asked.project_id}),
        given.role_id == asked.role_id,
        given.user_id == asked.user_id,
        sa.or_(given.ends_at == 0, given.ends_at > asked.created_at),
    )
    if await connection.scalar(sa.select(has)):
        raise AlreadyExists("You have this role already.", param="role_id")
    count = (
        sa.select(sa.func.count())
        .select_from(elevations)
        .where(
            elevations.c.organization_id == asked.organization_id,
            elevations.c.user_id == asked.user_id,
            elevations.c.created_at > asked.created_at - DAY_SECONDS,
        )
    )
    if (await connection.execute(count)).scalar_one() >= MAX_DAILY_REQUESTS:
        raise ResourceExhausted(f"You asked for {MAX_DAILY_REQUESTS} roles within a day.")


async def _found(
    connection: AsyncConnection, organization_id: str, elevation_id: str, *, locked: bool = False
) -> Elevation:
    query = elevations.select().where(
        elevations.c.id == elevation_id, elevations.c.organization_id == organization_id
    )
    row = (await connection.execute(query.with_for_update() if locked else query)).first()
    if row is None:
        raise unknown_elevation(elevation_id)
    return _elevation(row)


async def _write(connection: AsyncConnection, one: Elevation) -> None:
    await connection.execute(
        elevations.update().where(elevations.c.id == one.id).values(asdict(one))
    )


def _state() -> sa.ColumnElement[str]:
    """The state now, as `Elevation.state_at` has it."""
    table, now = elevations.c, now_seconds()
    lapsed = sa.and_(table.state == PENDING, table.expires_at <= now)
    over = sa.and_(table.state == "approved", table.ends_at <= now)
    return sa.case((lapsed, "expired"), (over, "ended"), else_=table.state)


def _elevation(row: Any) -> Elevation:
    values = {name: getattr(row, name) for name in Elevation.__slots__}
    lists = {name: tuple(value) for name, value in values.items() if isinstance(value, list)}
    return Elevation(**values | lists)
