"""Statuses of the jobs' workloads, followed from clusters."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import grpc

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.api.clusters.v1 import clusters_pb2_grpc as rpc
from windlass.core import telemetry
from windlass.core.clock import now_ms
from windlass.jobs.domain import transitions
from windlass.jobs.domain.job import Change, Job, Level, NewEvent, Queue
from windlass.jobs.domain.reports import MESSAGE_LENGTH
from windlass.jobs.storage.store import JobStore
from windlass.metrics.process import LOOP_FAILURES

log = telemetry.logger("jobs")
RECONNECT_SECONDS = 0.5
# Jobs that statuses change in one transaction, and so are locked together.
STATUS_BATCH = 50
# How long an agent may take to deliver the last word of a runner that ended well.
FINISH_GRACE_MS = 60_000
# A status names so many at most, and a job remembers the keys of so many.
MAX_OBSERVATIONS = 16
MAX_OBSERVED = 64
KEY_LENGTH = 128


def observed(job: Job, status: pb.WorkloadStatus, *, now: int, most: int) -> Change:
    """The change that a status makes to its job; none for another generation or cluster."""
    current = (job.generation, job.cluster_id)
    if (status.generation, status.cluster_id) != current or not job.held:
        return Change(job=job)
    newest = status.observations[-MAX_OBSERVATIONS:]
    seen = {one.key[:KEY_LENGTH]: one for one in newest}
    news = {key: one for key, one in seen.items() if key not in job.observed}
    told = tuple(_event(job, one, now) for one in news.values())
    job = replace(job, observed=(*job.observed, *news)[-MAX_OBSERVED:])
    change = _became(job, status, now=now, most=most)
    return replace(change, events=(*told, *change.events))


def _event(job: Job, observation: pb.Observation, now: int) -> NewEvent:
    return NewEvent(
        message=observation.message[:MESSAGE_LENGTH],
        level=Level.WARN if observation.warning else Level.INFO,
        # A cluster's clock may be off; nothing happens before the job or after now.
        at_ms=min(max(observation.at_ms, job.created_at_ms), now),
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
        return transitions.starting(job, status.message or status.reason)
    if status.phase == pb.PHASE_RUNNING:
        return transitions.running(job, now)
    if status.phase == pb.PHASE_STOPPED:
        return transitions.stopped(job, now)
    if status.phase == pb.PHASE_FAILED:
        reason, message = status.reason, status.message
        return transitions.died(job, reason=reason, message=message[:2000], now=now, most=most)
    if status.phase == pb.PHASE_SUCCEEDED:
        return transitions.exited(job, now + FINISH_GRACE_MS)
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
                log.info("status_stream_lost", error=error.details())
            except Exception as error:
                LOOP_FAILURES.labels("jobs statuses").inc()
                log.error("status_batch_failed", exc_info=error)
            await asyncio.sleep(RECONNECT_SECONDS)

    async def take(self, statuses: Sequence[pb.WorkloadStatus]) -> None:
        """Applies what is news; the rest costs one read.

        A status that cannot be applied keeps no other from its job, and its error is raised then.
        """
        by_id = {status.workload_id: status for status in statuses}

        def decide(job: Job) -> Change:
            return observed(job, by_id[job.id], now=now_ms(), most=self._max_attempts)

        known = await self._store.find(sorted(by_id))
        news = [job.id for job in known.values() if decide(job) != Change(job=job)]
        failed: Exception | None = None
        for start in range(0, len(news), STATUS_BATCH):
            batch = news[start : start + STATUS_BATCH]
            try:
                await self._store.change_all(batch, decide)
            except Exception:
                for job_id in batch:
                    try:
                        await self._store.change_all([job_id], decide)
                    except Exception as error:
                        failed = error
        if failed is not None:
            raise failed
