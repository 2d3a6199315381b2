"""The agent: watches what its cluster should run, brings it about, says what is."""

import asyncio
import contextlib
import time
from importlib.metadata import PackageNotFoundError, version
from typing import Protocol

import grpc

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.core import telemetry
from windlass.core.backoff import Backoff
from windlass.core.ids import new_id
from windlass.metrics import agent as metrics
from windlass_agent.control_plane.connection import ControlPlane
from windlass_agent.control_plane.credentials import Renewal
from windlass_agent.control_plane.lease import ControlPlaneLease, LeaseState
from windlass_agent.executors.measuring import show, show_engines
from windlass_agent.executors.port import Executor
from windlass_agent.retrying import reason_of
from windlass_agent.statuses import StatusBook

# Statuses are looked at this often even when no driver says that one changed, and so is the
# contact with a silent control plane.
LOOK_SECONDS = 1.0
# So that a burst of changes is one report.
COALESCE_SECONDS = 0.01
# A launch changes a status several times; reporting takes at most one part in so many of the time.
REPORT_SHARE = 4
LAST_REPORT_SECONDS = 3.0
ABANDON_SECONDS = 10.0
# Heartbeats without an answer, after which the agent counts as not ready.
MISSED_HEARTBEATS = 3

log = telemetry.logger("agent")


class Fenced(Exception):
    """The control plane will not hear this agent again; everything it ran is stopped."""

    def __init__(self, reason: str):
        super().__init__(f"fenced: {reason}")
        self.reason = reason


_FENCES = frozenset({"cluster_unregistered", "session_superseded"})


class Controller(Protocol):
    """Keeps what a cluster has beside its workloads."""

    def take(self, spec: pb.ClusterSpec) -> None:
        """Takes the desired state from now on."""

    async def run(self, session_id: str) -> None:
        """Runs until cancelled, within a session that the control plane has accepted."""


class Agent:
    """One life of an agent. `changed` is what the executor sets when a status changes."""

    def __init__(
        self,
        control: ControlPlane,
        executor: Executor,
        changed: asyncio.Event,
        *,
        kind: str,
        lease: ControlPlaneLease | None = None,
        controller: Controller | None = None,
        renewal: Renewal | None = None,
    ):
        self._control = control
        self._executor = executor
        self._changed = changed
        self._kind = kind
        self._session = new_id("session-")
        self._book = StatusBook(executor)
        self._lease = lease or ControlPlaneLease()
        self._controller = controller
        self._renewal = renewal
        self._heartbeat_seconds = 5
        self._drains = False
        # Set when something is to be told before the next heartbeat is due.
        self._beat_now = asyncio.Event()
        self.accepted = asyncio.Event()
        # Set when the time that the control plane may be silent changes.
        self._limited = asyncio.Event()
        metrics.SILENCE_SECONDS.set_function(lambda: self._lease.silence_seconds)

    async def run(self) -> None:
        """Runs until cancelled; raises Fenced once another agent took over or the cluster ended."""
        await self._executor.adopt()
        fence: BaseException | None = None
        try:
            async with asyncio.TaskGroup() as group:
                for loop in (
                    self._watch,
                    self._heartbeat,
                    self._report,
                    self._suspend_jobs,
                    self._keep,
                    self._renew,
                ):
                    group.create_task(loop())
        except* Fenced as fences:
            await self._abandon()
            fence = fences.exceptions[0]
        finally:
            await self._executor.close()
            with contextlib.suppress(grpc.aio.AioRpcError, TimeoutError):
                async with asyncio.timeout(LAST_REPORT_SECONDS):
                    await self._report_once()
        if fence is not None:
            raise fence

    def drain(self) -> None:
        """Has the control plane send requests elsewhere from now on, since this life is to end."""
        self._drains = True
        self._beat_now.set()

    async def readiness(self) -> dict[str, str]:
        """The contact with the control plane: `ok`, or what is wrong with it."""
        silence = self._lease.silence_seconds
        if not self.accepted.is_set():
            return {"control_plane": "not reached yet"}
        if silence > MISSED_HEARTBEATS * self._heartbeat_seconds:
            return {"control_plane": f"no answer for {silence:.0f} s"}
        return {"control_plane": "ok"}

    async def measure(self) -> None:
        """Sets the metrics of workloads, slots and engines."""
        show(self._executor.statuses(), self._book.wanted, self._executor.capacity())
        show_engines(await self._executor.engine_loads(), self._book.wanted)

    async def _watch(self) -> None:
        request = pb.WatchRequest(
            session_id=self._session,
            agent_version=_version(),
            executor=self._kind,
            paged=True,
        )
        backoff = Backoff()
        while True:
            try:
                async for delta in self._control.watch(request):
                    backoff.reset()
                    await self._take(delta)
            except grpc.aio.AioRpcError as error:
                _raise_if_fenced(error)
                metrics.CALL_FAILURES.labels("watch").inc()
                log.warning("watch_lost", code=error.code().name, details=error.details())
            await backoff.pause()

    async def _take(self, delta: pb.WorkloadsDelta) -> None:
        if delta.snapshot:
            # What became of it first: it may want something else when it knows.
            with contextlib.suppress(grpc.aio.AioRpcError):
                await self._report_once()
            self._lease.limit(delta.suspend_seconds)
            self._limited.set()
        workloads = self._book.take(delta)
        for workload in self._lease.mask_suspended(workloads, snapshot=delta.snapshot):
            await self._executor.apply(workload)
        if self._controller and delta.HasField("spec"):
            self._controller.take(delta.spec)
        self._heartbeat_seconds = delta.heartbeat_seconds or self._heartbeat_seconds
        self.accepted.set()
        self._changed.set()

    async def _heartbeat(self) -> None:
        backoff = Backoff(longest=2.0)
        await self.accepted.wait()
        while True:
            asked = self._lease.now()
            self._beat_now.clear()
            capacity = self._executor.capacity()
            capacity.draining = self._drains
            try:
                with metrics.HEARTBEAT_SECONDS.time():
                    current = await self._control.heartbeat(self._session, capacity)
            except grpc.aio.AioRpcError as error:
                _raise_if_fenced(error)
                metrics.CALL_FAILURES.labels("heartbeat").inc()
                await backoff.pause()
                continue
            if not current:
                raise Fenced("session_superseded")
            self._lease.heard(asked)
            backoff.reset()
            # By the time of the question: an answer that was long under way counts from there.
            due = asked + self._lease.pace(self._heartbeat_seconds)
            await set_within(self._beat_now, max(0, due - self._lease.now()))

    async def _keep(self) -> None:
        if self._controller:
            await self.accepted.wait()
            await self._controller.run(self._session)

    async def _renew(self) -> None:
        if self._renewal:
            await self._renewal.run()

    async def _suspend_jobs(self) -> None:
        """Ends every job when the control plane was silent for too long."""
        before = LeaseState.IN_TOUCH
        while True:
            in_touch = before is LeaseState.IN_TOUCH
            await set_within(self._limited, self._lease.seconds_left if in_touch else LOOK_SECONDS)
            self._limited.clear()
            state, due = self._lease.state, list[pb.Workload]()
            if state is not LeaseState.IN_TOUCH:
                due = self._lease.suspend_jobs(self._executor.statuses(), self._book.wanted)
            elif not in_touch:
                # So that the executor names again what it has forgotten.
                wanted = list(self._book.wanted.values())
                due = self._lease.mask_suspended(wanted, snapshot=False)
            for workload in due:
                await self._executor.apply(workload)
            if state is not before:
                log.warning("control_plane_contact_changed", state=state.name.lower())
            before = state

    async def _report(self) -> None:
        backoff, rested = Backoff(longest=2.0), 0.0
        await self.accepted.wait()
        while True:
            # Nothing is told of a workload that nobody wants.
            if await set_within(self._changed, LOOK_SECONDS if self._book.wanted else None):
                await asyncio.sleep(max(COALESCE_SECONDS, rested - time.monotonic()))
            self._changed.clear()
            began = time.monotonic()
            try:
                await self._report_once()
                backoff.reset()
            except grpc.aio.AioRpcError as error:
                _raise_if_fenced(error)
                metrics.CALL_FAILURES.labels("report").inc()
                await backoff.pause()
            ended = time.monotonic()
            rested = ended + min(REPORT_SHARE * (ended - began), LOOK_SECONDS)

    async def _report_once(self) -> None:
        while batch := self._book.unreported():
            await self._control.report(self._session, batch)
            self._book.reported(batch)

    async def _abandon(self) -> None:
        """Ends everything: another agent runs it by now, or none should."""
        log.error("agent_fenced")
        for tombstone in self._book.tombstones(self._executor.statuses()):
            await self._executor.apply(tombstone)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ABANDON_SECONDS):
                while self._executor.statuses():
                    await self._changed.wait()
                    self._changed.clear()


async def set_within(event: asyncio.Event, seconds: float | None) -> bool:
    """Waits for an event; False if it is not set within so many seconds, None for ever."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()


def _raise_if_fenced(error: grpc.aio.AioRpcError) -> None:
    if (reason := reason_of(error)) in _FENCES:
        raise Fenced(reason) from error


def _version() -> str:
    try:
        return version("windlass")
    except PackageNotFoundError:
        return "0"
