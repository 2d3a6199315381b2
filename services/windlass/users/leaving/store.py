"""Every query on erasures: from the request until it is undone or begins."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from windlass.core.clock import now_seconds
from windlass.core.db import Database
from windlass.core.db.paging import newest_first
from windlass.core.ids import new_id
from windlass.core.leaving.tables import OPEN, SCHEDULED, UNDONE, erasures, steps
from windlass.users.keys.revocation import note, resting_on, revoke_where
from windlass.users.leaving.domain import Erasure, ErasureStep, no_undo, unknown
from windlass.users.membership.owners import lock_owners, require_platform_admin
from windlass.users.store import archive, reconsider
from windlass.users.tables import api_keys, members, organizations, projects


def _erasure(row: Any) -> Erasure:
    names = set(Erasure.__slots__) - {"steps"}
    return Erasure(**{name: getattr(row, name) for name in names})


_HELD = sa.exists().where(
    organizations.c.id == erasures.c.organization_id, organizations.c.held_at > 0
)
_SELECT = sa.select(erasures, _HELD.label("held"))


class ErasureStore:
    """Erasures of projects and organizations."""

    def __init__(self, database: Database, *, grace_seconds: int):
        self._database = database
        self._grace_seconds = grace_seconds

    async def delete_organization(self, organization_id: str, *, by: str) -> Erasure:
        """Ends its keys, archives its projects and schedules its erasure; idempotent."""
        async with self._database.begin() as connection:
            await lock_owners(connection, organization_id)
            gone = members.c.organization_id == organization_id
            await require_platform_admin(connection, without=gone)
            await connection.execute(
                organizations.update()
                .where(organizations.c.id == organization_id, organizations.c.deleted_at == 0)
                .values(deleted_at=now_seconds())
            )
            own = projects.c.organization_id == organization_id
            archived = await connection.execute(
                projects.update()
                .where(own, projects.c.archived_at == 0)
                .values(archived_at=now_seconds())
                .returning(projects.c.id)
            )
            restores = list(archived.scalars())
            await revoke_where(
                connection, organization_id, api_keys.c.organization_id == organization_id
            )
            await reconsider(connection, organization_id)
            query = sa.select(members.c.user_id).where(gone).distinct()
            await note(connection, resting_on((await connection.execute(query)).scalars().all()))
            every = list((await connection.execute(sa.select(projects.c.id).where(own))).scalars())
            return await self._schedule(connection, organization_id, "", every, restores, by)

    async def delete_project(self, organization_id: str, project_id: str, *, by: str) -> Erasure:
        """Archives it and schedules its erasure; idempotent."""
        async with self._database.begin() as connection:
            was_live = await archive(connection, organization_id, project_id)
            restores = [project_id] if was_live else []
            return await self._schedule(
                connection, organization_id, project_id, [project_id], restores, by
            )

    async def _schedule(
        self,
        connection: AsyncConnection,
        organization_id: str,
        project_id: str,
        project_ids: list[str],
        restores: list[str],
        by: str,
    ) -> Erasure:
        now = now_seconds()
        # Of two requests, the second waits for this row and finds the first one's erasure.
        await _lock(connection, organization_id)
        found = await _open(connection, organization_id, project_id)
        if found is not None:
            return found
        made = {
            "id": new_id("erasure_"),
            "organization_id": organization_id,
            "project_id": project_id,
            "project_ids": project_ids,
            "restores": restores,
            "state": SCHEDULED,
            "asked_by": by,
            "asked_at": now,
            "erase_at": now + self._grace_seconds,
        }
        await connection.execute(erasures.insert().values(made))
        query = _SELECT.where(erasures.c.id == made["id"])
        return _erasure((await connection.execute(query)).one())

    async def undo(self, organization_id: str, project_id: str) -> Erasure:
        """Makes what was to be erased live again, without its keys.

        Raises FailedPrecondition `not_scheduled`.
        """
        async with self._database.begin() as connection:
            await _lock(connection, organization_id)
            found = await _open(connection, organization_id, project_id)
            if found is None or found.state != SCHEDULED:
                raise no_undo()
            this = erasures.c.id == found.id
            statement = (
                erasures.update().where(this).values(state=UNDONE, finished_at=now_seconds())
            )
            restores = (await connection.execute(statement.returning(erasures.c.restores))).scalar()
            await connection.execute(
                projects.update().where(projects.c.id.in_(restores)).values(archived_at=0)
            )
            if not project_id:
                await connection.execute(
                    organizations.update()
                    .where(organizations.c.id == organization_id)
                    .values(deleted_at=0)
                )
            await reconsider(connection, organization_id)
            return _erasure((await connection.execute(_SELECT.where(this))).one())

    async def hold(self, organization_id: str, *, held: bool) -> bool:
        """Stops every erasure of the organization that has not begun, until released.

        Returns whether there is such an organization.
        """
        statement = organizations.update().where(organizations.c.id == organization_id)
        async with self._database.begin() as connection:
            done = await connection.execute(statement.values(held_at=now_seconds() if held else 0))
        return bool(done.rowcount)

    async def list(
        self, organization_id: str | None, *, after: str, limit: int
    ) -> Sequence[Erasure]:
        """Erasures, newest first; of all organizations without one."""
        own = (
            sa.true() if organization_id is None else erasures.c.organization_id == organization_id
        )
        query = newest_first(
            _SELECT.where(own), erasures.c.asked_at, erasures.c.id, after=after, of=own
        )
        async with self._database.autocommit() as connection:
            return [_erasure(row) for row in await connection.execute(query.limit(limit))]

    async def get(self, organization_id: str | None, erasure_id: str) -> Erasure:
        """Returns one with the steps of its services; raises NotFound."""
        query = _SELECT.where(erasures.c.id == erasure_id)
        if organization_id is not None:
            query = query.where(erasures.c.organization_id == organization_id)
        done = steps.select().where(steps.c.erasure_id == erasure_id).order_by(steps.c.id)
        async with self._database.autocommit() as connection:
            row = (await connection.execute(query)).first()
            if row is None:
                raise unknown(erasure_id)
            found = _erasure(row)
            names = ErasureStep.__slots__
            for step in await connection.execute(done):
                # `rows` of a row is a column of ours.
                values = step._mapping
                found.steps.append(ErasureStep(**{name: values[name] for name in names}))
        return found


async def _lock(connection: AsyncConnection, organization_id: str) -> None:
    query = sa.select(organizations.c.id).where(organizations.c.id == organization_id)
    await connection.execute(query.with_for_update())


async def _open(
    connection: AsyncConnection, organization_id: str, project_id: str
) -> Erasure | None:
    query = _SELECT.where(
        OPEN,
        erasures.c.organization_id == organization_id,
        erasures.c.project_id == project_id,
    )
    row = (await connection.execute(query)).first()
    return None if row is None else _erasure(row)
