"""Changes of jobs by the statuses of their workloads."""

from collections.abc import Sequence
from dataclasses import replace

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.core.clock import now_ms
from windlass.jobs.domain import transitions
from windlass.jobs.domain.job import Change, Job, Level, NewEvent, Queue
from windlass.jobs.domain.reports import MESSAGE_LENGTH
from windlass.jobs.storage.store import JobStore

# How long an agent may take to deliver the last word of a runner that ended well.
FINISH_GRACE_MS = 60_000
# A status names so many at most, and a job remembers the keys of so many.
MAX_OBSERVATIONS = 16
MAX_OBSERVED = 64
KEY_LENGTH = 128


def observed(job: Job, status: pb.WorkloadStatus, *, now: int, max_attempts: int) -> Change:
    """The change that a status makes to its job; none for another generation or cluster."""
    current = (job.generation, job.cluster_id)
    if (status.generation, status.cluster_id) != current or not job.held:
        return Change(job=job)
    newest = status.observations[-MAX_OBSERVATIONS:]
    seen = {one.key[:KEY_LENGTH]: one for one in newest}
    news = {key: one for key, one in seen.items() if key not in job.observed}
    told = tuple(_event(job, one, now) for one in news.values())
    job = replace(job, observed=(*job.observed, *news)[-MAX_OBSERVED:])
    change = _became(job, status, now=now, max_attempts=max_attempts)
    return replace(change, events=(*told, *change.events))


def _event(job: Job, observation: pb.Observation, now: int) -> NewEvent:
    return NewEvent(
        message=observation.message[:MESSAGE_LENGTH],
        level=Level.WARN if observation.warning else Level.INFO,
        # A cluster's clock may be off; nothing happens before the job or after now.
        at_ms=min(max(observation.at_ms, job.created_at_ms), now),
    )


def _became(job: Job, status: pb.WorkloadStatus, *, now: int, max_attempts: int) -> Change:
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
        return transitions.died(
            job, reason=reason, message=message[:2000], now=now, max_attempts=max_attempts
        )
    if status.phase == pb.PHASE_SUCCEEDED:
        return transitions.exited(job, now + FINISH_GRACE_MS)
    return Change(job=job)


class JobStatuses:
    """Applies statuses of workloads to their jobs."""

    def __init__(self, store: JobStore, *, max_attempts: int):
        self._store = store
        self._max_attempts = max_attempts

    async def apply(self, statuses: Sequence[pb.WorkloadStatus]) -> None:
        """Applies what is news in one transaction; the rest costs one read."""
        by_id = {status.workload_id: status for status in statuses}

        def decide(job: Job) -> Change:
            return observed(job, by_id[job.id], now=now_ms(), max_attempts=self._max_attempts)

        known = await self._store.find(sorted(by_id))
        news = [job.id for job in known.values() if decide(job) != Change(job=job)]
        if news:
            await self._store.change_all(news, decide)
