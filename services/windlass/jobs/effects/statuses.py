"""What clusters say of the jobs' workloads, and clusters that say nothing any more."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Self

import grpc
import sqlalchemy as sa

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.api.clusters.v1 import clusters_pb2_grpc as rpc
from windlass.core import telemetry
from windlass.core.clock import now_ms
from windlass.core.config import Settings
from windlass.core.db import Database
from windlass.jobs.domain import transitions
from windlass.jobs.domain.job import TERMINAL, Change, Job, Level, NewEvent, Queue, State
from windlass.jobs.domain.reports import MESSAGE_LENGTH
from windlass.jobs.storage.store import JobStore
from windlass.jobs.storage.tables import jobs

log = telemetry.logger("jobs")
RECONNECT_SECONDS = 0.5
PATROL_BATCH = 200
# Jobs that statuses change in one transaction, and so are locked together.
STATUS_BATCH = 50
# How long an agent may take to deliver the last word of a runner that ended well.
FINISH_MS = 60_000
# A status names so many at most, and a job remembers the keys of so many.
OBSERVATIONS_MOST = 16
OBSERVED_MOST = 64
KEY_LENGTH = 128


def observed(job: Job, status: pb.WorkloadStatus, *, now: int, most: int) -> Change:
    """What a status makes of its job. One of another generation or cluster means nothing."""
    current = (job.generation, job.cluster_id)
    if (status.generation, status.cluster_id) != current or not job.held:
        return Change(job=job)
    newest = status.observations[-OBSERVATIONS_MOST:]
    seen = {one.key[:KEY_LENGTH]: one for one in newest}
    news = {key: one for key, one in seen.items() if key not in job.observed}
    told = tuple(_event(job, one, now) for one in news.values())
    job = replace(job, observed=(*job.observed, *news)[-OBSERVED_MOST:])
    change = _became(job, status, now=now, most=most)
    return replace(change, events=(*told, *change.events))


def _event(job: Job, observation: pb.Observation, now: int) -> NewEvent:
    return NewEvent(
        message=observation.message[:MESSAGE_LENGTH],
        level=Level.WARN if observation.warning else Level.INFO,
        # A cluster's clock may be off; nothing happens before the job or after now.
        at_ms=min(max(observation.at_ms, job.created_ms), now),
    )


def _became(job: Job, status: pb.WorkloadStatus, *, now: int, most: int) -> Change:
    if status.phase == pb.PHASE_PENDING:
        queue = Queue(
            name=status.queue or job.queue.name,
            position=max(0, status.queue_position),
            reason=status.message or status.reason,
        )
        return transitions.pending(job, queue)
    if status.phase == pb.PHASE_STARTING:
        return transitions.starting(job)
    if status.phase == pb.PHASE_RUNNING:
        return transitions.running(job, now)
    if status.phase == pb.PHASE_STOPPED:
        return transitions.stopped(job, now)
    if status.phase == pb.PHASE_FAILED:
        reason, message = status.reason, status.message
        return transitions.died(job, reason=reason, message=message[:2000], now=now, most=most)
    if status.phase == pb.PHASE_SUCCEEDED:
        return transitions.exited(job, now + FINISH_MS)
    return Change(job=job)


class StatusFollower:
    """Follows `clusters.WatchStatus`; level-triggered, so that any number may follow."""

    def __init__(
        self,
        store: JobStore,
        clusters: rpc.ClustersInternalServiceAsyncStub,
        *,
        max_attempts: int,
    ):
        self._store = store
        self._clusters = clusters
        self._max_attempts = max_attempts

    async def run(self) -> None:
        """Follows until cancelled; a lost stream is opened again and begins with all."""
        while True:
            try:
                async for delta in self._clusters.WatchStatus(pb.WatchStatusRequest(owner="jobs")):
                    if delta.statuses:
                        await self.take(delta.statuses)
            except grpc.aio.AioRpcError as error:
                log.info("status stream lost", error=error.details())
            except Exception as error:
                telemetry.LOOP_FAILURES.labels("jobs statuses").inc()
                log.error("statuses not taken", exc_info=error)
            await asyncio.sleep(RECONNECT_SECONDS)

    async def take(self, statuses: Sequence[pb.WorkloadStatus]) -> None:
        """Applies what is news; the rest costs one read."""
        by_id = {status.workload_id: status for status in statuses}

        def decide(job: Job) -> Change:
            return observed(job, by_id[job.id], now=now_ms(), most=self._max_attempts)

        known = await self._store.find(sorted(by_id))
        news = [job.id for job in known.values() if decide(job) != Change(job=job)]
        for start in range(0, len(news), STATUS_BATCH):
            await self._store.change_all(news[start : start + STATUS_BATCH], decide)


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
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


class Patrol:
    """Finds jobs on clusters that went silent, and stops that nobody confirms.

    How long a cluster was away is counted by this process's own clock: after a
    restart of ours every cluster has its full time to come back.
    """

    def __init__(
        self,
        database: Database,
        store: JobStore,
        *,
        patience: Patience,
        max_attempts: int,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._database = database
        self._store = store
        self._patience = patience
        self._max_attempts = max_attempts
        self._clock = clock
        self._missing: dict[str, float] = {}

    async def look(self, live: frozenset[str]) -> bool:
        """One round, given who is live; whether there may be more to do."""
        placed = await self._placed()
        now = self._clock()
        self._missing = {
            cluster: self._missing.get(cluster, now) for cluster in placed if cluster not in live
        }
        found = 0
        for seconds, ours in (
            (self._patience.processes, jobs.c.place.is_(None)),
            (self._patience.kubernetes, jobs.c.place.is_not(None)),
        ):
            lost = [cluster for cluster, since in self._missing.items() if now - since >= seconds]
            found = max(found, await self._lose(lost, ours) if lost else 0)
        await self._settle_overdue()
        return found == PATROL_BATCH

    async def _placed(self) -> Sequence[str]:
        query = sa.select(jobs.c.cluster_id).where(*_on_clusters()).distinct()
        async with self._database.read() as connection:
            return (await connection.execute(query)).scalars().all()

    async def _lose(self, clusters: Sequence[str], ours: sa.ColumnElement[bool]) -> int:
        active = jobs.c.state != int(State.FINALIZING)
        ids = await self._ids(jobs.c.cluster_id.in_(clusters), active, ours)

        def decide(job: Job) -> Change:
            if job.cluster_id not in clusters:
                return Change(job=job)
            return transitions.agent_lost(job, now=now_ms(), most=self._max_attempts)

        for job_id in ids:
            await self._store.change(job_id, decide)
        return len(ids)

    async def _settle_overdue(self) -> None:
        waited = jobs.c.deadline_ms.between(1, now_ms())
        for job_id in await self._ids(waited, jobs.c.state != int(State.FINALIZING)):
            await self._store.change(
                job_id, lambda job: transitions.overdue(job, now_ms(), most=self._max_attempts)
            )

    async def _ids(self, *where: sa.ColumnElement[bool]) -> Sequence[str]:
        query = sa.select(jobs.c.id).where(*_on_clusters(), *where).limit(PATROL_BATCH)
        async with self._database.read() as connection:
            return (await connection.execute(query)).scalars().all()


def _on_clusters() -> tuple[sa.ColumnElement[bool], ...]:
    return (
        jobs.c.cluster_id != sa.literal_column("''"),
        jobs.c.state < sa.literal_column(f"{min(TERMINAL):d}"),
    )
