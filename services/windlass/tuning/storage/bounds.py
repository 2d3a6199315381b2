"""Quotas of tuning: what a project and its organization may have of it.

An operation must cost no further trip to the database: what bounds it is read every few seconds,
and what was admitted since is counted here.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from windlass.core.clock import now_seconds
from windlass.core.db import Database
from windlass.core.errors import AppError
from windlass.core.quotas import Quota, QuotaBounds, Quotas, exceeded
from windlass.tuning.storage.log import QUEUED, NewOperation, WaitingRoom
from windlass.tuning.storage.tables import checkpoints, operations, runs, sessions

KNOWN_SECONDS = 5.0
KNOWN_PROJECTS = 4096
# Where there is no bound.
_ANY = 2**40


@dataclass(slots=True)
class _KnownBounds:
    at: float
    waiting: QuotaBounds
    bytes: QuotaBounds
    # Of the organization, where that has a bound.
    waiting_there: int
    bytes_there: int
    bytes_here: int


class TuningBounds:
    """The quotas of tuning, and what counts by them."""

    def __init__(self, database: Database, quotas: Quotas, *, session_seconds: int):
        self._database = database
        self._quotas = quotas
        self._session_seconds = session_seconds
        self._known: dict[str, _KnownBounds] = {}

    async def room(self, new: NewOperation) -> WaitingRoom:
        """The room for an operation; none where its body would be too much."""
        known = await self._look(new.organization_id, new.project_id)
        if (refusal := _refusal(known, new)) is not None:
            return WaitingRoom(0, refusal)
        most = known.waiting.project or _ANY
        return WaitingRoom(most, exceeded(Quota.TUNING_OPERATIONS, "project", most + 1, most))

    async def most_waiting(self, organization_id: str, project_id: str) -> int:
        """The number of operations that may wait."""
        bounds = (await self._look(organization_id, project_id)).waiting
        return min(filter(None, (bounds.project, bounds.organization)), default=_ANY)

    def admitted(self, new: NewOperation) -> None:
        """Counts an operation that was written."""
        if (known := self._known.get(new.project_id)) is not None:
            known.waiting_there += 1
            known.bytes_there += new.body_bytes
            known.bytes_here += new.body_bytes

    async def require_run(self, connection: AsyncConnection, run: Mapping[str, Any]) -> None:
        """Counts open runs after one was stored; raises PermissionDenied where they are too many,
        or too many of them train all parameters.

        Call `hold` before it is stored.
        """
        scope = run["organization_id"], run["project_id"]
        bounds = await self._quotas.of(connection, Quota.TUNING_RUNS, *scope)
        is_open = runs.c.state == "active"
        count = sa.func.count()
        await _require(connection, bounds, runs, is_open, count, *scope, 0)
        if not run["is_full"]:
            return
        bounds = await self._quotas.of(connection, Quota.TUNING_FULL_RUNS, *scope)
        silent_before = now_seconds() - self._session_seconds
        # Those of silent sessions give their trainers back.
        is_held = sa.and_(is_open, runs.c.is_full, sa.exists().where(
            sessions.c.id == runs.c.session_id, sessions.c.end == "",
            sessions.c.heartbeat_at >= silent_before,
        ))  # fmt: skip
        await _require(connection, bounds, runs, is_held, count, *scope, 0)

    async def hold(self, connection: AsyncConnection, quota: Quota, organization_id: str) -> None:
        """Waits for whoever else counts this."""
        await self._quotas.hold(connection, quota, organization_id, "")

    async def require_checkpoint(self, connection: AsyncConnection, row: dict[str, Any]) -> None:
        """Raises PermissionDenied where one checkpoint more is too much, of its `size` if known."""
        scope = row["organization_id"], row["project_id"]
        ready = checkpoints.c.state != "deleting"
        if row["name"]:
            bounds = await self._quotas.hold(connection, Quota.TUNING_CHECKPOINTS, *scope)
            named = sa.and_(ready, checkpoints.c.name != "")
            await _require(connection, bounds, checkpoints, named, sa.func.count(), *scope, 1)
        bounds = await self._quotas.of(connection, Quota.TUNING_CHECKPOINT_BYTES, *scope)
        size = sa.func.coalesce(sa.func.sum(checkpoints.c.size), 0)
        more = max(row.get("size", 0), 1)
        await _require(connection, bounds, checkpoints, ready, size, *scope, more)

    async def _look(self, organization_id: str, project_id: str) -> _KnownBounds:
        known = self._known.get(project_id)
        if known is not None and time.monotonic() - known.at < KNOWN_SECONDS:
            return known
        if len(self._known) >= KNOWN_PROJECTS:
            self._known.clear()
        async with self._database.autocommit() as connection:
            scope = organization_id, project_id
            waiting = await self._quotas.of(connection, Quota.TUNING_OPERATIONS, *scope)
            held = await self._quotas.of(connection, Quota.TUNING_BODY_BYTES, *scope)
            there = operations.c.organization_id == organization_id
            here = operations.c.project_id == project_id
            known = _KnownBounds(
                time.monotonic(), waiting, held,
                await _counted(connection, sa.func.count(), waiting.organization, there, QUEUED),
                await _counted(connection, _BYTES, held.organization, there, _KEPT),
                await _counted(connection, _BYTES, held.project, here, _KEPT),
            )  # fmt: skip
        self._known[project_id] = known
        return known


_KEPT = operations.c.body_bytes > sa.literal_column("0")
_BYTES = sa.func.coalesce(sa.func.sum(operations.c.body_bytes), 0)


def _refusal(known: _KnownBounds, new: NewOperation) -> AppError | None:
    """The refusal of an operation for its bytes, or for what its organization may have."""
    most = known.waiting.organization
    if most and known.waiting_there >= most:
        return exceeded(Quota.TUNING_OPERATIONS, "organization", known.waiting_there + 1, most)
    try:
        known.bytes.require(
            organization=known.bytes_there + new.body_bytes,
            project=known.bytes_here + new.body_bytes,
        )
    except AppError as refusal:
        return refusal
    return None


async def _counted(
    connection: AsyncConnection, what: Any, bound: int, *where: sa.ColumnElement[bool]
) -> int:
    """A sum over operations; 0 where nothing is bound, since those may be any number of rows."""
    if not bound:
        return 0
    return int((await connection.execute(sa.select(what).where(*where))).scalar_one())


async def _require(
    connection: AsyncConnection,
    bounds: QuotaBounds,
    table: sa.Table,
    where: sa.ColumnElement[bool],
    what: Any,
    organization_id: str,
    project_id: str,
    more: int,
) -> None:
    """Raises where a sum over rows of an organization or a project is more than may be."""
    used = []
    for bound, column, scope in (
        (bounds.organization, table.c.organization_id, organization_id),
        (bounds.project, table.c.project_id, project_id),
    ):
        query = sa.select(what).select_from(table).where(column == scope, where)
        used.append(int((await connection.execute(query)).scalar_one()) + more if bound else 0)
    bounds.require(organization=used[0], project=used[1])
