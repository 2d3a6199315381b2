"""Outbox of effects on other services: leased rows, delivered at least once, marked done once."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import grpc
import sqlalchemy as sa

from windlass.core import telemetry
from windlass.core.backoff import doubled
from windlass.core.clock import now_ms
from windlass.core.db import Database
from windlass.core.db.leases import claim, held, released
from windlass.core.errors import (
    AlreadyExists,
    AppError,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    from_rpc,
)
from windlass.core.killpoints import reach
from windlass.core.objects import ObjectStoreError
from windlass.jobs.domain.job import CLOSING_KINDS, Change, EffectKind, Job
from windlass.jobs.domain.transitions import delayed, settled
from windlass.jobs.storage.store import JobStore
from windlass.jobs.storage.tables import outbox

log = telemetry.logger("jobs")
BATCH = 32
# Longer than most deliveries take; one that takes longer may happen twice, harmlessly.
LEASE_SECONDS = 15.0
RETRY_DELAY_MS = 100
MAX_RETRY_DELAY_MS = 30_000
# Asking again with the same words cannot help.
REFUSALS = (InvalidArgument, NotFound, FailedPrecondition, AlreadyExists)
# What a job's end waits for.
_REGISTERED = {
    EffectKind.REGISTER_CHECKPOINT: "a checkpoint",
    EffectKind.REGISTER_MODEL: "the model",
    EffectKind.REGISTER_MERGED: "the merged model",
    EffectKind.REGISTER_RESULT: "the result files",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Owed:
    """One row of the outbox."""

    id: int
    job_id: str
    kind: EffectKind
    attempt: int
    step: int
    payload: dict[str, Any]
    tries: int


# Delivers to the other service, and answers what its success makes of the job, None for nothing.
Decision = Callable[[Job], Change] | None
Deliver = Callable[[Owed, Job], Awaitable[Decision]]
# What a refusal makes of the job.
Refused = Callable[[Owed, Job, AppError], Change]


class Outbox:
    """Delivers rows of the kinds that it has a way for; any number of processes may."""

    def __init__(
        self,
        database: Database,
        store: JobStore,
        deliver: Mapping[EffectKind, Deliver],
        refused: Refused,
    ):
        self._database = database
        self._store = store
        self._deliver = deliver
        self._refused = refused
        self._handed: list[tuple[str, Owed, Job]] = []

    def hand(self, token: str, rows: Sequence[Any], jobs: Mapping[str, Job]) -> None:
        """Takes rows that the caller leased under `token`, so that nobody has to claim them.

        Lost with the process, which is why they are rows: their lease ends.
        """
        self._handed += [(token, _owed(row), jobs[row.job_id]) for row in rows]

    async def deliver_batch(self) -> bool:
        """Delivers what was handed over, else what is due; whether there may be more."""
        work, self._handed = self._handed[:BATCH], self._handed[BATCH:]
        work = work or await self._claim()
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._one(row, job, token)) for token, row, job in work]
        plain = [
            (token, row.id)
            for (token, row, _), task in zip(work, tasks, strict=True)
            if task.result()
        ]
        if plain:
            await self._mark(plain)
        return len(work) == BATCH or bool(self._handed)

    async def _claim(self) -> list[tuple[str, Owed, Job]]:
        due = sa.and_(
            sa.literal_column("NOT done"),
            outbox.c.kind.in_(list(self._deliver)),
            outbox.c.not_before_ms <= now_ms(),
        )
        token, rows = await claim(self._database, outbox, due, limit=BATCH, seconds=LEASE_SECONDS)
        if not rows:
            return []
        jobs = await self._store.find(sorted({row.job_id for row in rows}))
        return [(token, _owed(row), jobs[row.job_id]) for row in rows]

    async def _one(self, row: Owed, job: Job, token: str) -> bool:
        """Returns True if the row was delivered and only remains to be marked."""
        try:
            decide = await self._attempt(row, job)
            reach(f"jobs.delivered.{row.kind}")
        except (AppError, ObjectStoreError, TimeoutError) as error:
            await self._postpone(row, token, error)
            return False
        if decide is None and row.kind not in CLOSING_KINDS:
            return True
        await self._finish(row, token, decide)
        return False

    async def _attempt(self, row: Owed, job: Job) -> Decision:
        try:
            return await self._deliver[row.kind](row, job)
        except grpc.aio.AioRpcError as error:
            refusal = from_rpc(error)
            if not isinstance(refusal, REFUSALS):
                raise refusal from error
        log.warning("delivery_refused", job=row.job_id, kind=row.kind, error=str(refusal))
        return lambda job: self._refused(row, job, refusal)

    async def _mark(self, rows: Sequence[tuple[str, int]]) -> None:
        mine = sa.tuple_(outbox.c.lease_owner, outbox.c.id).in_(rows)
        async with self._database.begin() as connection:
            await connection.execute(outbox.update().where(mine).values(done=True, **released()))

    async def _postpone(self, row: Owed, token: str, error: Exception) -> None:
        log.warning(
            "delivery_failed", job=row.job_id, kind=row.kind, tries=row.tries, error=str(error)
        )
        pause = doubled(RETRY_DELAY_MS, row.tries, longest=MAX_RETRY_DELAY_MS)
        async with self._database.begin() as connection:
            await connection.execute(
                outbox.update()
                .where(outbox.c.id == row.id, held(outbox, token))
                .values(not_before_ms=now_ms() + pause, tries=outbox.c.tries + 1, **released())
            )
        # What passes at once is no news. Why it failed names machines, and is in the log.
        if row.kind in _REGISTERED and row.tries:
            reason = (
                f"Registering {_REGISTERED[row.kind]} failed {row.tries + 1} times, since a "
                f"service does not answer; the next try follows in {max(1, pause // 1000)} s"
            )
            async with self._store.locked(row.job_id) as locked:
                await locked.apply(delayed(locked.job, reason))

    async def _finish(self, row: Owed, token: str, decide: Decision) -> None:
        """Marks a row done together with what it makes of its job; nothing if it was not ours."""
        async with self._store.locked(row.job_id) as locked:
            done = await locked.connection.execute(
                outbox.update()
                .where(outbox.c.id == row.id, held(outbox, token), ~outbox.c.done)
                .values(done=True, **released())
            )
            if done.rowcount == 0:
                return
            if decide is not None:
                await locked.apply(decide(locked.job))
            if row.kind in CLOSING_KINDS and not await self._store.owed(
                locked.connection, row.job_id
            ):
                await locked.apply(settled(locked.job, now_ms()))


def _owed(row: Any) -> Owed:
    values = {name: getattr(row, name) for name in Owed.__slots__}
    return replace(Owed(**values), kind=EffectKind(row.kind))
