"""Detection of silent clusters, whose jobs are placed elsewhere."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

import sqlalchemy as sa

from windlass.core.clock import now_ms
from windlass.core.config import Settings
from windlass.core.db import Database
from windlass.jobs.domain import transitions
from windlass.jobs.domain.job import TERMINAL, Change, Job, JobState
from windlass.jobs.storage.store import JobStore
from windlass.jobs.storage.tables import jobs

SWEEP_BATCH = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class LostAfter:
    """Seconds until the jobs of a silent cluster are placed anew, by what runs them."""

    processes: float
    kubernetes: float

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """Twice the time after which an agent suspends its jobs, where it does."""
        agents, otherwise = settings.agents, settings.jobs.agent_lost_seconds
        return cls(
            processes=2 * agents.process_suspend_seconds or otherwise,
            kubernetes=2 * agents.suspend_seconds or otherwise,
        )


class LivenessSweeper:
    """Finds jobs on clusters that went silent, and stops that nobody confirms.

    How long a cluster was away is counted by this process's own clock: after a
    restart of ours every cluster has its full time to come back.
    """

    def __init__(
        self,
        database: Database,
        store: JobStore,
        *,
        lost_after: LostAfter,
        max_attempts: int,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._database = database
        self._store = store
        self._lost_after = lost_after
        self._max_attempts = max_attempts
        self._clock = clock
        self._missing: dict[str, float] = {}

    async def look(self, live: frozenset[str]) -> bool:
        """Runs one round, given who is live; returns True if there may be more to do."""
        placed = await self._placed()
        now = self._clock()
        self._missing = {
            cluster: self._missing.get(cluster, now) for cluster in placed if cluster not in live
        }
        found = 0
        for seconds, ours in (
            (self._lost_after.processes, jobs.c.place.is_(None)),
            (self._lost_after.kubernetes, jobs.c.place.is_not(None)),
        ):
            lost = [cluster for cluster, since in self._missing.items() if now - since >= seconds]
            found = max(found, await self._lose(lost, ours) if lost else 0)
        await self._settle_overdue()
        return found == SWEEP_BATCH

    async def _placed(self) -> Sequence[str]:
        query = sa.select(jobs.c.cluster_id).where(*_on_clusters()).distinct()
        async with self._database.autocommit() as connection:
            return (await connection.execute(query)).scalars().all()

    async def _lose(self, clusters: Sequence[str], ours: sa.ColumnElement[bool]) -> int:
        active = jobs.c.state != int(JobState.FINALIZING)
        ids = await self._ids(jobs.c.cluster_id.in_(clusters), active, ours)

        def decide(job: Job) -> Change:
            if job.cluster_id not in clusters:
                return Change(job=job)
            return transitions.agent_lost(job, now=now_ms(), max_attempts=self._max_attempts)

        for job_id in ids:
            await self._store.change(job_id, decide)
        return len(ids)

    async def _settle_overdue(self) -> None:
        waited = jobs.c.deadline_ms.between(1, now_ms())
        for job_id in await self._ids(waited, jobs.c.state != int(JobState.FINALIZING)):
            await self._store.change(
                job_id,
                lambda job: transitions.overdue(job, now_ms(), max_attempts=self._max_attempts),
            )

    async def _ids(self, *where: sa.ColumnElement[bool]) -> Sequence[str]:
        query = sa.select(jobs.c.id).where(*_on_clusters(), *where).limit(SWEEP_BATCH)
        async with self._database.autocommit() as connection:
            return (await connection.execute(query)).scalars().all()


def _on_clusters() -> tuple[sa.ColumnElement[bool], ...]:
    return (
        jobs.c.cluster_id != sa.literal_column("''"),
        jobs.c.state < sa.literal_column(f"{min(TERMINAL):d}"),
    )
