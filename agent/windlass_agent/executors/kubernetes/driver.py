"""Jobs on Kubernetes: reconciles the desired state with what the cluster shows.

The cluster's own objects are the record of what runs. They are watched and changed; nothing
that has to survive this process is kept elsewhere.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.api.jobs.v1 import jobs_pb2
from windlass.core import telemetry
from windlass.core.backoff import Backoff
from windlass_agent.clock import now_ms
from windlass_agent.executors.kubernetes.attempt_state import LAUNCHING, AttemptState
from windlass_agent.executors.kubernetes.launching import Launcher
from windlass_agent.executors.kubernetes.observe.informers import AttemptInformers
from windlass_agent.executors.kubernetes.observe.queue_positions import QueuePositions
from windlass_agent.executors.kubernetes.observe.snapshot import AttemptSnapshot, Key, PodSnapshot
from windlass_agent.executors.kubernetes.settings import Patience
from windlass_agent.executors.kubernetes.worker import TrackedJob, Worker
from windlass_agent.kube import KubeError
from windlass_agent.kueue import Workload
from windlass_agent.retrying import run_forever
from windlass_agent.runner_service import Registered

# So that a burst of changes is looked at once.
COALESCE_SECONDS = 0.02
# A look takes in everything; looking takes at most one part in so many of the time.
LOOK_SHARE = 5
# Also when nothing changed: a patience may have ended.
LOOK_SECONDS = 1.0
# How long the cluster may yet show what was made before its end was asked for.
DROPPED_SECONDS = 60.0

log = telemetry.logger("jobs")


class KubernetesJobDriver:
    """The driver of run-to-completion workloads. `looked` is set by the informers."""

    def __init__(
        self,
        *,
        cluster_id: str,
        launcher: Launcher,
        informers: AttemptInformers,
        positions: QueuePositions,
        worker: Worker,
        patience: Patience,
        looked: asyncio.Event,
        changed: Callable[[], None],
    ):
        self._cluster_id = cluster_id
        self._launcher = launcher
        self._informers = informers
        self._positions = positions
        self._worker = worker
        self._patience = patience
        self._looked = looked
        self._changed = changed
        self._jobs: dict[str, TrackedJob] = {}
        self._sights: dict[Key, AttemptSnapshot] = {}
        # Attempts that nobody wants, and since when; kept while the cluster shows them.
        self._dropped: dict[Key, float] = {}
        self._dropping: set[Key] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def apply(self, workload: pb.Workload) -> None:
        """Accepts the desired state of a job."""
        job = self._jobs.get(workload.id)
        if job is None:
            if workload.desired == pb.DESIRED_STATE_DELETED:
                return
            job = self._jobs[workload.id] = TrackedJob(workload)
        elif workload.HasField("job"):
            job.workload = workload
        else:
            job.workload.desired = workload.desired
            job.workload.generation = workload.generation
        job.told = True
        job.nudged.set()
        self._work_on(job)
        self._changed()

    def statuses(self) -> list[pb.WorkloadStatus]:
        """The status of every job."""
        return [_shown(job) for job in self._jobs.values()]

    async def adopt(self) -> None:
        """Starts the informers and takes over the attempts that they show."""
        self._spawn(run_forever("following", self._informers.run))
        while not self._informers.settled:
            await self._looked.wait()
            self._looked.clear()
        for key, paths in (await self._orphans()).items():
            self._job_of(key).orphans[key.attempt] = paths
        self._look()
        self._spawn(run_forever("looking", self._keep_looking))
        self._spawn(run_forever("queue_positions", self._positions.run))
        log.info("attempts_adopted", attempts=len(self._sights))

    async def close(self) -> None:
        """Stops the driver; attempts keep running for the next agent process."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._worker.close()

    def waiting(self) -> list[Workload]:
        """Jobs that wait in a queue, with their Workloads."""
        admissions = (snapshot.admission for snapshot in self._sights.values())
        return [one for one in admissions if one is not None and one.waiting is not None]

    def registered(self, pod: PodSnapshot) -> Registered:
        """The rights of a pod's runner; when jobs knows a newer attempt, this one ends."""
        run = jobs_pb2.Run(job_id=pod.job_id, attempt=pod.key.attempt)
        return Registered(run=run, superseded=lambda: self._supersede(pod.key))

    @property
    def used(self) -> int:
        """Attempts that have not ended."""
        attempts = (one for job in self._jobs.values() for one in job.attempts.values())
        return sum(one.ended is None for one in attempts)

    def _supersede(self, key: Key) -> None:
        job = self._jobs.get(key.workload)
        if job is not None and (state := job.attempts.get(key.attempt)) is not None:
            state.superseded = True
            self._work_on(job)

    async def _orphans(self) -> dict[Key, list[str]]:
        backoff = Backoff()
        while True:
            try:
                return await self._launcher.orphans(self._cluster_id)
            except KubeError as error:
                log.warning("adoption_failed", reason=error.reason, message=error.message)
            await backoff.pause()

    async def _keep_looking(self) -> None:
        took = 0.0
        while True:
            try:
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._looked.wait()
            except TimeoutError:
                self._press_on()
                continue
            await asyncio.sleep(max(COALESCE_SECONDS, LOOK_SHARE * took))
            self._looked.clear()
            began = time.monotonic()
            self._look()
            took = time.monotonic() - began

    def _look(self) -> None:
        """Compares what the cluster shows with what it showed before."""
        before, self._sights = self._sights, self._informers.snapshots(self._positions.positions)
        for key in before.keys() | self._sights.keys():
            snapshot = self._sights.get(key)
            if snapshot is before.get(key):
                continue
            if key not in self._dropped:
                self._see(self._job_of(key), key, snapshot)
            elif snapshot is not None and snapshot.alive:
                self._drop(self._made_of(key, snapshot))
        oldest = time.monotonic() - DROPPED_SECONDS
        for key in [key for key, since in self._dropped.items() if since < oldest]:
            if key not in self._sights:
                del self._dropped[key]

    def _press_on(self) -> None:
        """Makes the changes that depend on time alone."""
        now = time.monotonic()
        for job in list(self._jobs.values()):
            for state in list(job.attempts.values()):
                if state.deadline <= now:
                    self._see(job, state.key, state.snapshot)
                elif state.is_unseen(now):
                    self._work_on(job)

    def _see(self, job: TrackedJob, key: Key, snapshot: AttemptSnapshot | None) -> None:
        state = job.attempts.get(key.attempt)
        if state is None:
            if snapshot is None:
                return
            state = job.attempts[key.attempt] = self._made_of(key, snapshot)
            if not job.told:
                job.workload.job.attempt = max(job.attempts)
                job.workload.generation = max(job.workload.generation, state.generation)
        state.see(snapshot, clock=time.monotonic(), now_ms=now_ms())
        if snapshot is None and not job.told:
            # Nobody knows it, and now it is gone.
            del job.attempts[key.attempt]
        self._work_on(job)
        self._changed()

    def _made_of(self, key: Key, snapshot: AttemptSnapshot) -> AttemptState:
        state = AttemptState(key, job_id=key.workload, patience=self._patience)
        state.take_over(snapshot)
        return state

    def _job_of(self, key: Key) -> TrackedJob:
        """The job of an attempt, made of its labels where nobody has told of it yet."""
        if key.workload not in self._jobs:
            spec = pb.JobWorkload(job_id=key.workload, attempt=key.attempt)
            workload = pb.Workload(id=key.workload, cluster_id=self._cluster_id, job=spec)
            self._jobs[key.workload] = TrackedJob(workload)
        return self._jobs[key.workload]

    def _work_on(self, job: TrackedJob) -> None:
        job.again, job.shown = True, None
        if job.told and not job.working:
            job.working = True
            self._spawn(self._bring_about(job))
        elif job.is_gone:
            self._jobs.pop(job.workload.id, None)

    async def _bring_about(self, job: TrackedJob) -> None:
        await self._worker.bring_about(job, self._drop)
        job.shown = None
        if job.is_gone and self._jobs.get(job.workload.id) is job:
            del self._jobs[job.workload.id]
            self._changed()

    def _drop(self, state: AttemptState) -> None:
        """Lets what is left of an attempt vanish."""
        self._dropped[state.key] = time.monotonic()
        if state.key not in self._dropping:
            self._dropping.add(state.key)
            self._spawn(self._vanish(state))

    async def _vanish(self, state: AttemptState) -> None:
        try:
            await self._worker.drop(state, self._dropped)
        finally:
            self._dropping.discard(state.key)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            log.error("job_task_failed", exc_info=error)


def _shown(job: TrackedJob) -> pb.WorkloadStatus:
    """Returns its status, made anew only where something may have changed."""
    status = job.shown
    if status is None or job.working:
        status = job.shown = _status(job)
    return status


def _status(job: TrackedJob) -> pb.WorkloadStatus:
    number = job.workload.job.attempt
    state = job.attempts.get(number)
    if any(attempt < number and one.ended is None for attempt, one in job.attempts.items()):
        status = pb.WorkloadStatus(
            phase=pb.PHASE_PENDING,
            reason="AttemptBefore",
            message="Waiting for the previous attempt to end.",
        )
    elif state is not None:
        status = state.status()
    elif job.workload.desired == pb.DESIRED_STATE_RUNNING:
        # As it is told of what was begun, so that to begin is no news.
        reason, message = LAUNCHING.reason, LAUNCHING.message
        status = pb.WorkloadStatus(phase=LAUNCHING.phase, reason=reason, message=message)
    else:
        status = pb.WorkloadStatus(phase=pb.PHASE_STOPPED, reason="NeverStarted")
    status.workload_id = job.workload.id
    status.generation = job.workload.generation
    return status
