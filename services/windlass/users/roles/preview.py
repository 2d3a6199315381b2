"""Previews of changes: each is made, looked at, and taken back in one transaction.

So a preview is refused where the change would be, and shows what it does.
"""

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from windlass.core.clock import now_seconds
from windlass.core.db import Database
from windlass.core.db.paging import cut
from windlass.users.domain import ApiKey
from windlass.users.keys.revocation import resting_on
from windlass.users.keys.store import key_of
from windlass.users.roles.changes import Change, found_role
from windlass.users.roles.effects import (
    Grant,
    PowerSnapshot,
    Preview,
    effect_on,
    effects_on_keys,
)
from windlass.users.standing import held_roles, people_behind, standings
from windlass.users.tables import api_keys, role_assignments, roles

# That rest on the people of a page: so many are looked at, the newest first, and shown.
LOOKED_AT_KEYS = 1000
MOST_KEYS = 200


@dataclass(frozen=True, slots=True)
class PreviewSubject:
    """A role whose holders a change concerns: all of them, or one in a place."""

    organization_id: str
    role_id: str
    project_id: str | None = None
    user_id: str = ""
    group_id: str = ""

    def holders(self, *, after: str) -> sa.Select[Any]:
        """The people who have the role, by their ids."""
        held = held_roles(self.organization_id)
        query = sa.select(held.c.user_id).distinct().order_by(held.c.user_id)
        query = query.where(held.c.role_id == self.role_id, held.c.user_id > after)
        if self.project_id is None:
            return query
        query = query.where(held.c.project_id == self.project_id, held.c.group_id == self.group_id)
        return query.where(held.c.user_id == self.user_id) if self.user_id else query

    async def places(self, connection: AsyncConnection) -> set[str]:
        """The projects where it is had; an empty one: all of the organization."""
        if self.project_id is not None:
            return {self.project_id}
        given = role_assignments.c
        query = sa.select(given.project_id).where(given.role_id == self.role_id).distinct()
        return set((await connection.execute(query)).scalars())


class Previews:
    """Makes changes of roles without their coming to be."""

    def __init__(self, database: Database):
        self._database = database

    async def of(
        self, change: Change[Any], subject: PreviewSubject, *, after: str, limit: int
    ) -> Preview:
        """Returns who and which keys would gain or lose; raises what the change would raise."""
        organization_id = subject.organization_id
        query = subject.holders(after=after).limit(limit + 1)
        async with self._database.begin() as connection:
            # Held until the end: nobody changes the role between the two looks.
            await found_role(connection, organization_id, subject.role_id, locked=True)
            holders = set((await connection.execute(query)).scalars())
            places = await subject.places(connection)
            tried = await connection.begin_nested()
            await change(connection)
            holders |= set((await connection.execute(query)).scalars())
            people, more = cut(sorted(holders), limit)
            keys = await _keys(connection, organization_id, people, places)
            concerned = {*people, *(one for key in keys for one in people_behind(key))}
            then = await _snapshot(connection, organization_id, concerned)
            await tried.rollback()
            now = await _snapshot(connection, organization_id, concerned)
        effects = effects_on_keys(keys[:LOOKED_AT_KEYS], now, then)
        return Preview(
            [effect_on(person, subject.role_id, places, now, then) for person in people],
            more,
            effects[:MOST_KEYS],
            len(keys) > LOOKED_AT_KEYS or len(effects) > MOST_KEYS,
        )


async def _snapshot(
    connection: AsyncConnection, organization_id: str, people: Collection[str]
) -> PowerSnapshot:
    held = held_roles(organization_id)
    query = (
        sa.select(held, roles.c.permissions)
        .join(roles, roles.c.id == held.c.role_id)
        .where(held.c.user_id.in_(people))
        .order_by(held.c.user_id, held.c.project_id, held.c.group_id, held.c.role_id)
    )
    grants: dict[str, list[Grant]] = defaultdict(list)
    for row in await connection.execute(query):
        grants[row.user_id].append(
            Grant(
                row.group_id, row.project_id, row.role_id, row.ends_at, frozenset(row.permissions)
            )
        )
    return PowerSnapshot(
        organization_id,
        await standings(connection, people),
        {person: grants[person] for person in people},
    )


async def _keys(
    connection: AsyncConnection, organization_id: str, people: Collection[str], places: set[str]
) -> list[ApiKey]:
    """The live keys that rest on these people in places, the newest first, and one too many."""
    query = (
        api_keys.select()
        .where(
            api_keys.c.organization_id == organization_id,
            api_keys.c.revoked_at == 0,
            sa.or_(api_keys.c.expires_at == 0, api_keys.c.expires_at > now_seconds()),
            resting_on(people),
        )
        .order_by(api_keys.c.created_at.desc(), api_keys.c.id.desc())
    )
    if "" not in places:
        query = query.where(api_keys.c.project_id.in_(places))
    return [key_of(row) for row in await connection.execute(query.limit(LOOKED_AT_KEYS + 1))]
