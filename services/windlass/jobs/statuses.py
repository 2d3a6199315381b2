"""What clusters say of the jobs' workloads, and clusters that say nothing any more."""

import asyncio
import time
from collections.abc import Callable, Sequence

import grpc
import sqlalchemy as sa

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.api.clusters.v1 import clusters_pb2_grpc as rpc
from windlass.core import telemetry
from windlass.core.db import Database
from windlass.jobs import transitions
from windlass.jobs.domain import TERMINAL, Change, Job, Queue, State
from windlass.jobs.service import now_ms
from windlass.jobs.store import JobStore
from windlass.jobs.tables import jobs

log = telemetry.logger("jobs")
RECONNECT_SECONDS = 0.5
PATROL_BATCH = 200
# How long an agent may take to deliver the last word of a runner that ended well.
FINISH_MS = 60_000


def observed(job: Job, status: pb.WorkloadStatus, *, now: int, most: int) -> Change:
    """What a status makes of its job. One of another generation or cluster means nothing."""
    current = (job.generation, job.cluster_id)
    if (status.generation, status.cluster_id) != current or not job.held:
        return Change(job=job)
    if status.phase == pb.PHASE_PENDING:
        queue = Queue(
            position=max(0, status.queue_position), reason=status.message or status.reason
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
        known = await self._store.find(sorted(by_id))
        for job_id, job in known.items():
            decide = self._decision(by_id[job_id])
            if decide(job) != Change(job=job):
                await self._store.change(job_id, decide)

    def _decision(self, status: pb.WorkloadStatus) -> Callable[[Job], Change]:
        return lambda job: observed(job, status, now=now_ms(), most=self._max_attempts)


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
        lost_seconds: float,
        max_attempts: int,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._database = database
        self._store = store
        self._lost_seconds = lost_seconds
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
        lost = [c for c, since in self._missing.items() if now - since >= self._lost_seconds]
        found = await self._lose(lost) if lost else 0
        await self._settle_overdue()
        return found == PATROL_BATCH

    async def _placed(self) -> Sequence[str]:
        query = sa.select(jobs.c.cluster_id).where(*_on_clusters()).distinct()
        async with self._database.read() as connection:
            return (await connection.execute(query)).scalars().all()

    async def _lose(self, clusters: Sequence[str]) -> int:
        active = jobs.c.state != int(State.FINALIZING)
        ids = await self._ids(jobs.c.cluster_id.in_(clusters), active)

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
