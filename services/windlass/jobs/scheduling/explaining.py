"""Explanation of a job's placement or wait: one sentence, and a verdict per cluster."""

from dataclasses import dataclass, replace

from windlass.core.db import Database
from windlass.core.quotas import Quotas
from windlass.jobs.domain.job import Job, JobState
from windlass.jobs.domain.transitions import SENT
from windlass.jobs.scheduling.capacity import Capacity
from windlass.jobs.scheduling.cluster_snapshot import ClusterSnapshot
from windlass.jobs.scheduling.decisions import Decided, DecisionStore
from windlass.jobs.scheduling.running_quota import running
from windlass.jobs.scheduling.scoring import NO_BACKEND, UNFIT, Load, score

_PLAIN = {
    JobState.VALIDATING: "Its files are still being inspected.",
    JobState.FINALIZING: "Training is over, and its model is being registered.",
    JobState.PAUSING: "It is saving its state, to be paused.",
    JobState.PAUSED: "It is paused until somebody resumes it.",
    JobState.CANCELLING: "It is being cancelled.",
    JobState.SUCCEEDED: "It has succeeded.",
    JobState.CANCELLED: "It was cancelled.",
}
_PHASES = {
    "preparing": "is getting its model and files",
    "starting": "is starting its trainer",
    "evaluating": "is evaluating its model",
    "exporting": "is writing other forms of its model",
    "uploading": "is uploading its model",
}


@dataclass(frozen=True, slots=True)
class Explanation:
    """Response of `ExplainJob`."""

    summary: str
    decided: Decided


class Explanations:
    """Explains jobs: by the decision that was taken, or the one that would be taken now."""

    def __init__(
        self, database: Database, quotas: Quotas, decisions: DecisionStore, capacity: Capacity
    ):
        self._database = database
        self._quotas = quotas
        self._decisions = decisions
        self._capacity = capacity

    async def of(self, job: Job, now: int) -> Explanation:
        """Returns why a job is where it is."""
        if job.cluster_id or job.ended:
            decided = await self._decisions.latest(job)
            return Explanation(summary(job, decided, now), decided)
        decided = foreseen(job, self._capacity.snapshot, self._capacity.load)
        fits = bool(decided.verdicts) and decided.verdicts[0].fits
        if fits and job.state is JobState.QUEUED and (full := await self._full(job)):
            return Explanation(f"It waits. {full}", decided)
        return Explanation(summary(job, decided, now), decided)

    async def _full(self, job: Job) -> str:
        """The quota of running jobs that the job waits for; empty when it need not."""
        async with self._database.autocommit() as connection:
            shares = await running(connection, self._quotas, [job], held=False)
        return shares.full(job)


def foreseen(job: Job, snapshot: ClusterSnapshot | None, load: Load) -> Decided:
    """The decision that placement would make about a job now."""
    if snapshot is None:
        return Decided()
    if not snapshot.clusters and not job.queue.reason:
        # Placement will say so as well, a moment later.
        return Decided(reason=f"{NO_BACKEND}{job.spec.backend}")
    verdicts = score(job, snapshot, load)
    return Decided(verdicts=tuple(replace(one, chosen=False) for one in verdicts))


def summary(job: Job, decided: Decided, now: int) -> str:
    """Returns the explanation as one sentence."""
    if job.state in _PLAIN:
        return f"{_PLAIN[job.state]} {job.queue.reason}".rstrip(" .") + "."
    if job.failure is not None:
        return f"It failed: {job.failure.message}"
    if not job.cluster_id:
        return _unplaced(job, decided, now)
    chosen = next((one for one in decided.verdicts if one.chosen), None)
    cluster = f"cluster {chosen.cluster_name if chosen else job.cluster_id}"
    if job.state is JobState.QUEUED:
        return _queued(job, cluster)
    if job.state is JobState.STARTING:
        if job.queue.reason == SENT:
            return f"It was sent to {cluster}, which has not accepted it yet."
        return f"It is starting in {cluster}{_because(job)}".rstrip(".") + "."
    why = f"; when it was placed: {chosen.reason}" if chosen else ""
    does = _PHASES.get(job.progress.phase, "runs")
    return f"It {does} in {cluster}{why}."


def _unplaced(job: Job, decided: Decided, now: int) -> str:
    best = decided.verdicts[0] if decided.verdicts else None
    if best is not None and best.fits:
        if job.not_before_ms > now and job.attempt:
            seconds = -(-(job.not_before_ms - now) // 1000)
            return f"{job.queue.reason}; the next begins in {seconds} s."
        return f"It is about to be placed in cluster {best.cluster_name}."
    return f"It waits. {job.queue.reason or decided.reason or UNFIT}."


def _queued(job: Job, cluster: str) -> str:
    queue = job.queue
    where = f" in queue {queue.name} of {cluster}" if queue.name else f" in {cluster}"
    place = f", at place {queue.position}" if queue.position else ""
    return f"It waits{where}{place}{_because(job)}".rstrip(".") + "."


def _because(job: Job) -> str:
    return f": {job.queue.reason}" if job.queue.reason else ""
