"""The steps that bring one job to its desired state: launch, end, conclude, drop."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Container
from dataclasses import dataclass, field
from functools import partial

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.core import telemetry
from windlass.core.backoff import Backoff
from windlass_agent.clock import now_ms
from windlass_agent.executors.kubernetes.attempt_state import AttemptState
from windlass_agent.executors.kubernetes.delivery import LogDelivery
from windlass_agent.executors.kubernetes.launching import Launcher
from windlass_agent.executors.kubernetes.observe.snapshot import Key
from windlass_agent.executors.kubernetes.settings import Patience
from windlass_agent.kube import KubeError
from windlass_agent.reconcile import Action, Desired, Want, decide

# How long an attempt that nobody wants any more may still deliver its log.
LAST_DELIVERY_SECONDS = 60.0
CALLS_AT_ONCE = 16
_backoff = partial(Backoff, shortest=0.5, longest=8.0)
WANTS = {
    pb.DESIRED_STATE_RUNNING: Want.RUNNING,
    pb.DESIRED_STATE_STOPPED: Want.STOPPED,
    pb.DESIRED_STATE_DELETED: Want.DELETED,
}

log = telemetry.logger("jobs")


@dataclass(eq=False)
class TrackedJob:
    """Desired and actual state of a job."""

    workload: pb.Workload
    # Whether this life was told what it should be; until then it is left alone.
    told: bool = False
    attempts: dict[int, AttemptState] = field(default_factory=dict)
    # Objects of launches that never came to their root object, by attempt.
    orphans: dict[int, list[str]] = field(default_factory=dict)
    # What was last said of it; None once something of it has changed.
    shown: pb.WorkloadStatus | None = None
    working: bool = False
    again: bool = False
    nudged: asyncio.Event = field(default_factory=asyncio.Event)
    backoff: Backoff = field(default_factory=_backoff)

    @property
    def want(self) -> Want:
        """The wanted state."""
        return WANTS.get(self.workload.desired, Want.STOPPED)

    @property
    def is_gone(self) -> bool:
        """True if nothing is left to be done or to be told."""
        return (
            not self.attempts and not self.orphans and (not self.told or self.want is Want.DELETED)
        )

    def next(self) -> AttemptState | None:
        """The attempt that stands in the way: an older one first."""
        number = self.workload.job.attempt
        older = [each for each in sorted(self.attempts) if each < number or self._goes]
        return self.attempts.get(older[0] if older else number)

    @property
    def _goes(self) -> bool:
        return self.want is Want.DELETED


class Worker:
    """Takes steps until none is due; failed ones are retried later."""

    def __init__(
        self,
        launcher: Launcher,
        delivery: LogDelivery,
        *,
        patience: Patience,
        changed: Callable[[], None],
    ):
        self._launcher = launcher
        self._delivery = delivery
        self._patience = patience
        self._changed = changed
        self._turn = asyncio.Semaphore(CALLS_AT_ONCE)

    async def close(self) -> None:
        """Leaves logs to the next life."""
        await self._delivery.close()

    async def bring_about(self, job: TrackedJob, dropped: Callable[[AttemptState], None]) -> None:
        """`dropped` is told of attempts that are to vanish."""
        try:
            while job.again:
                job.again = False
                try:
                    done = await self._steps(job, dropped)
                except KubeError as error:
                    log.warning(
                        "job_step_failed", workload=job.workload.id, reason=error.reason,
                        message=error.message,
                    )  # fmt: skip
                    done = False
                if done:
                    job.backoff.reset()
                else:
                    await self._wait(job)
        finally:
            job.working = False

    async def _wait(self, job: TrackedJob) -> None:
        """Waits before the next try; returns at once when something new is wanted."""
        job.nudged.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(job.backoff.next()):
                await job.nudged.wait()
        job.again = True

    async def _steps(self, job: TrackedJob, dropped: Callable[[AttemptState], None]) -> bool:
        """Returns True if nothing is due now."""
        state: AttemptState | None
        for each in list(job.attempts.values()):
            await self._settle(each)
        while True:
            state = job.next()
            desired = Desired(want=job.want, attempt=job.workload.job.attempt)
            match decide(desired, state.actual() if state is not None else None):
                case Action.START:
                    state = self._begin(job)
                    break
                case Action.FORGET if state is not None:
                    del job.attempts[state.key.attempt]
                    dropped(state)
                case Action.STOP if state is not None:
                    await self._end(state, at_once=False)
                case Action.KILL if state is not None:
                    await self._end(state, at_once=True)
                case _:
                    break
        await self._clear(job)
        if job.want is Want.RUNNING and state is not None and state.is_to_launch:
            return await self._launch(job, state)
        return True

    def _begin(self, job: TrackedJob) -> AttemptState:
        spec = job.workload.job
        key = Key(job.workload.id, spec.attempt)
        state = AttemptState(key, job_id=spec.job_id, patience=self._patience)
        job.attempts[spec.attempt] = state
        return state

    async def _launch(self, job: TrackedJob, state: AttemptState) -> bool:
        root = state.snapshot.root if state.snapshot is not None else None
        found = None
        async with self._turn:
            if root is None:
                found = await self._launcher.launch(state, job.workload)
            else:
                await self._launcher.complete(state, job.workload, root)
        if found is None:
            state.launched_at = time.monotonic()
            job.orphans.pop(state.key.attempt, None)
        else:
            state.find(found, clock=time.monotonic(), now_ms=now_ms())
            await self._settle(state)
        self._changed()
        return found is None or state.verdict is not None

    async def _settle(self, state: AttemptState) -> None:
        """Takes the steps that do not depend on the desired state."""
        self._delivery.follow(state)
        if state.ended is not None:
            return
        if state.superseded and not state.killing:
            await self._end(state, at_once=True)
        if state.is_unseen(time.monotonic()):
            async with self._turn:
                there = await self._launcher.exists(state)
            if there:
                state.launched_at = time.monotonic()
            else:
                state.vanished()
        if state.is_to_end:
            await self._end(state, at_once=False)
        await self._conclude(state)

    async def _end(self, state: AttemptState, *, at_once: bool) -> None:
        async with self._turn:
            if at_once:
                await self._launcher.kill(state)
            else:
                await self._launcher.stop(state)
        state.stopping = True
        state.killing = state.killing or at_once
        if not state.seen:
            state.withdrawn()
        await self._conclude(state)
        self._changed()

    async def _conclude(self, state: AttemptState) -> None:
        """The end, which its runner's last word comes before, since it says more."""
        if state.over and state.ended is None:
            await self._delivery.last_word(state)
            state.ended = state.verdict
            self._changed()

    async def _clear(self, job: TrackedJob) -> None:
        """Removes what interrupted launches left behind."""
        number = job.workload.job.attempt
        for attempt in list(job.orphans):
            if job.want is Want.RUNNING and attempt == number:
                continue
            for path in job.orphans[attempt]:
                async with self._turn:
                    await self._launcher.delete(path)
            del job.orphans[attempt]

    async def drop(self, state: AttemptState, dropped: Container[Key]) -> None:
        """Deletes what is left of an attempt once its log is stored, or cannot be."""
        await self._delivery.finish(state, LAST_DELIVERY_SECONDS)
        backoff = _backoff()
        while state.key in dropped:
            try:
                async with self._turn:
                    await self._launcher.stop(state)
                return
            except KubeError as error:
                log.warning("attempt_removal_failed", name=state.key, message=error.message)
            await backoff.pause()
