"""Jobs as processes: brings each to its desired state, one attempt at a time."""

import asyncio
import contextlib
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.core import telemetry
from windlass_agent.executors.process.jobs.attempt import AttemptContext, ProcessAttempt
from windlass_agent.executors.process.jobs.records import AttemptRecord
from windlass_agent.reconcile import Action, Desired, Want, decide

# How long an attempt that nobody wants any more may still deliver its log.
LAST_DELIVERY_SECONDS = 60.0
# What is left of a server's stop time when this has passed is for the last reports.
CLOSE_SECONDS = 12.0
_WANTS = {
    pb.DESIRED_STATE_RUNNING: Want.RUNNING,
    pb.DESIRED_STATE_STOPPED: Want.STOPPED,
    pb.DESIRED_STATE_DELETED: Want.DELETED,
}

log = telemetry.logger("jobs")


@dataclass
class _Job:
    workload: pb.Workload
    attempt: ProcessAttempt | None = None


class ProcessJobDriver:
    """The driver of run-to-completion workloads."""

    def __init__(self, context: AttemptContext, *, stop_on_close: bool):
        self._context = context
        self._stop_on_close = stop_on_close
        self._jobs: dict[str, _Job] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def apply(self, workload: pb.Workload) -> None:
        """Accepts the desired state of a job."""
        job = self._jobs.get(workload.id)
        if job is None:
            if workload.desired == pb.DESIRED_STATE_DELETED or not workload.HasField("job"):
                return
            job = self._jobs[workload.id] = _Job(workload)
        elif workload.HasField("job"):
            job.workload = workload
        else:
            job.workload.desired = workload.desired
            job.workload.generation = workload.generation
        self._reconcile(job)
        self._context.changed()

    def statuses(self) -> list[pb.WorkloadStatus]:
        """The status of every job."""
        return [_status(job) for job in self._jobs.values()]

    async def adopt(self) -> None:
        """Takes over running attempts; kills one that a newer attempt replaces."""
        found: dict[str, list[tuple[AttemptRecord, ProcessAttempt]]] = {}
        records = self._context.records.load()
        self._context.spares.adopt({record.spare for record in records.values()})
        for name, record in records.items():
            workload = record.decoded()
            attempt = ProcessAttempt(workload, self._context, record=record)
            if attempt.adopt():
                found.setdefault(workload.id, []).append((record, attempt))
            else:
                self._context.records.remove(name)
        for attempts in found.values():
            *older, (record, newest) = sorted(attempts, key=lambda pair: pair[1].number)
            workload = record.decoded()
            self._jobs[workload.id] = _Job(workload, newest)
            if not newest.delivered.is_set():
                self._spawn(self._live(self._jobs[workload.id], newest))
            for _, attempt in older:
                attempt.kill()
                self._spawn(attempt.live())
                self._spawn(self._drop(attempt))
        log.info("attempts_adopted", attempts=len(found))

    async def close(self) -> None:
        """Stops running attempts if so configured, else leaves them running. Ends spares."""
        await self._context.spares.close()
        if self._stop_on_close:
            alive = [
                job.attempt
                for job in self._jobs.values()
                if job.attempt is not None
                and job.attempt.started
                and not job.attempt.ended.is_set()
            ]
            for attempt in alive:
                attempt.stop("AgentStopped")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(CLOSE_SECONDS, self._context.drain_seconds)):
                    await asyncio.gather(*(attempt.ended.wait() for attempt in alive))
            for attempt in alive:
                attempt.kill()
            await asyncio.gather(*(attempt.ended.wait() for attempt in alive))
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _reconcile(self, job: _Job) -> None:
        """Takes steps until none is due."""
        while True:
            want = _WANTS.get(job.workload.desired, Want.STOPPED)
            desired = Desired(want=want, attempt=job.workload.job.attempt)
            actual = job.attempt.actual() if job.attempt else None
            match decide(desired, actual):
                case Action.START:
                    job.attempt = ProcessAttempt(job.workload, self._context)
                    self._spawn(self._live(job, job.attempt))
                case Action.FORGET if job.attempt is not None:
                    self._spawn(self._drop(job.attempt))
                    job.attempt = None
                case Action.STOP if job.attempt is not None:
                    job.attempt.stop()
                case Action.KILL if job.attempt is not None:
                    job.attempt.kill()
                case _:
                    break
        if want is Want.DELETED and job.attempt is None:
            self._jobs.pop(job.workload.id, None)

    async def _live(self, job: _Job, attempt: ProcessAttempt) -> None:
        async def settle() -> None:
            await attempt.ended.wait()
            self._reconcile(job)
            self._context.changed()

        async with asyncio.TaskGroup() as group:
            group.create_task(settle())
            await attempt.live()

    async def _drop(self, attempt: ProcessAttempt) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_DELIVERY_SECONDS):
                await attempt.delivered.wait()
        if all(
            job.attempt is None or job.attempt.name != attempt.name for job in self._jobs.values()
        ):
            await asyncio.to_thread(self._context.records.remove, attempt.name)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            log.error("attempt_task_failed", exc_info=error)


def _status(job: _Job) -> pb.WorkloadStatus:
    attempt = job.attempt
    if attempt is None:
        status = pb.WorkloadStatus(phase=pb.PHASE_STOPPED, reason="NeverStarted")
    elif attempt.number < job.workload.job.attempt:
        status = pb.WorkloadStatus(
            phase=pb.PHASE_PENDING, message="Waiting for the previous attempt to end"
        )
    else:
        status = attempt.status()
    status.workload_id = job.workload.id
    status.generation = job.workload.generation
    return status
