"""Engines that are serving stacks of others: nothing is started, what is there is watched."""

import asyncio
import contextlib
import hashlib
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.core import telemetry
from windlass.core.ids import is_identifier
from windlass_agent.engines.adopted.forwarder import Forwarder, HeldBytes
from windlass_agent.engines.adopted.stack import StackClient, StackProblem
from windlass_agent.folders import private_folder

STARTING_PROBE_SECONDS = 1.0
RUNNING_PROBE_SECONDS = 5.0
# Probes of a running stack that fail in a row before it counts as away.
FAILURES = 2

log = telemetry.logger("adopted")


class _Run:
    """One model of a stack, from its desired start until its end."""

    def __init__(
        self, workload: pb.Workload, sockets: Path, held: HeldBytes, changed: Callable[[], None]
    ):
        """Raises ValueError for a certificate that is none."""
        self.workload = workload
        name = hashlib.sha256(workload.id.encode()).hexdigest()[:16]
        self._socket = private_folder(sockets / f"e-{name}") / "s"
        self._changed = changed
        self._phase: pb.Phase.ValueType = pb.PHASE_STARTING
        self._message = ""
        self._context = 0
        self._asked = asyncio.Event()
        stack, model = StackClient(_spec(workload)), workload.engine.model
        self._forwarder = Forwarder(stack, model, self._socket, held)
        self._task = asyncio.create_task(self._live(), name=f"adopted {workload.id}")
        self._retiring: set[asyncio.Task[None]] = set()

    def apply(self, workload: pb.Workload) -> None:
        """Sends new requests to the stack as it is described now; raises ValueError."""
        changed = _spec(workload) != _spec(self.workload)
        if changed:
            former, self._forwarder.stack = self._forwarder.stack, StackClient(_spec(workload))
            retiring = asyncio.create_task(former.retire())
            self._retiring.add(retiring)
            retiring.add_done_callback(self._retiring.discard)
            self._asked.set()
        self.workload = workload
        if self._task.done():
            # It could not listen; it may now.
            self._phase = pb.PHASE_STARTING
            self._task = asyncio.create_task(self._live(), name=f"adopted {workload.id}")

    def status(self) -> pb.WorkloadStatus:
        """The status; id and generation are the caller's to fill."""
        is_running = self._phase == pb.PHASE_RUNNING
        return pb.WorkloadStatus(
            phase=self._phase,
            reason="WaitingForStack" if self._phase == pb.PHASE_STARTING else "",
            message=self._message,
            endpoint=f"unix://{self._socket}" if is_running else "",
            capabilities=self._capabilities() if is_running else None,
        )

    async def end(self, drain_seconds: float) -> None:
        """Lets open requests end within bounds, then ends everything."""
        self._become(pb.PHASE_STOPPING)
        self._task.cancel()
        await asyncio.gather(self._task, *self._retiring, return_exceptions=True)
        await self._forwarder.drain(drain_seconds)
        await self._forwarder.close()
        with contextlib.suppress(OSError):
            self._socket.parent.rmdir()

    async def _live(self) -> None:
        try:
            await self._forwarder.start()
        except OSError as error:
            log.error("adopted_socket_failed", engine=self.workload.id, exc_info=error)
            self._become(pb.PHASE_FAILED, "The agent cannot listen for requests to the stack.")
            return
        failures = FAILURES
        while True:
            problem = await self._problem()
            failures = failures + 1 if problem else 0
            if not problem:
                self._become(pb.PHASE_RUNNING)
            elif failures >= FAILURES:
                self._become(pb.PHASE_STARTING, problem)
            running = self._phase == pb.PHASE_RUNNING
            await self._rest(RUNNING_PROBE_SECONDS if running else STARTING_PROBE_SECONDS)

    async def _problem(self) -> str:
        """Returns why the stack cannot answer for the model now; empty if it can."""
        try:
            self._context = await self._forwarder.stack.probe()
        except StackProblem as problem:
            return str(problem)
        except Exception as error:
            log.error("stack_probe_failed", engine=self.workload.id, exc_info=error)
            return "The serving stack could not be asked; the agent's log says why."
        return ""

    async def _rest(self, seconds: float) -> None:
        """Waits, or until the stack is described anew."""
        try:
            async with asyncio.timeout(seconds):
                await self._asked.wait()
        except TimeoutError:
            return
        self._asked.clear()

    def _become(self, phase: "pb.Phase.ValueType", message: str = "") -> None:
        if (self._phase, self._message) != (phase, message):
            self._phase, self._message = phase, message
            self._changed()

    def _capabilities(self) -> pb.EngineCapabilities:
        said = pb.EngineCapabilities()
        said.CopyFrom(_spec(self.workload).capabilities)
        said.context_length = said.context_length or self._context
        return said


class AdoptedDriver:
    """A WorkloadDriver of engines whose spec names a stack."""

    def __init__(self, *, sockets: Path, drain_seconds: float, changed: Callable[[], None]):
        self._sockets = sockets
        self._drain_seconds = drain_seconds
        self._changed = changed
        self._held = HeldBytes()
        self._runs: dict[str, _Run] = {}
        # Of workloads that cannot run, or that end.
        self._others: dict[str, pb.WorkloadStatus] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def knows(self, workload_id: str) -> bool:
        """Returns True if the driver was given this workload."""
        return workload_id in self._runs or workload_id in self._others

    async def apply(self, workload: pb.Workload) -> None:
        """Accepts the desired state of an engine; raises ValueError for an invalid id."""
        if not is_identifier(workload.id):
            raise ValueError(f"{workload.id!r} is not an identifier")
        run = self._runs.get(workload.id)
        if run is not None and workload.generation < run.workload.generation:
            return
        if workload.desired == pb.DESIRED_STATE_DELETED:
            self._others.pop(workload.id, None)
            if run is not None:
                self._spawn(self._end(self._runs.pop(workload.id), workload))
        elif workload.HasField("engine"):
            self._begin(workload, run)
        self._changed()

    def _begin(self, workload: pb.Workload, run: _Run | None) -> None:
        self._others.pop(workload.id, None)
        try:
            if run is None:
                self._runs[workload.id] = _Run(workload, self._sockets, self._held, self._changed)
            else:
                run.apply(workload)
        except ValueError as error:
            self._others[workload.id] = pb.WorkloadStatus(
                workload_id=workload.id,
                generation=workload.generation,
                phase=pb.PHASE_FAILED,
                reason="InvalidStack",
                message=str(error),
            )

    def statuses(self) -> list[pb.WorkloadStatus]:
        """The status of every engine."""
        found = list(self._others.values())
        for identifier, run in self._runs.items():
            if identifier not in self._others:
                status = run.status()
                status.workload_id, status.generation = identifier, run.workload.generation
                found.append(status)
        return found

    async def adopt(self) -> None:
        """Does nothing: no process of ours outlived the agent."""

    async def close(self) -> None:
        """Ends every engine; the stacks know nothing of it."""
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        runs, self._runs = list(self._runs.values()), {}
        await asyncio.gather(*(run.end(0.0) for run in runs))

    async def _end(self, run: _Run, workload: pb.Workload) -> None:
        self._others[workload.id] = pb.WorkloadStatus(
            workload_id=workload.id, generation=workload.generation, phase=pb.PHASE_STOPPING
        )
        try:
            await run.end(self._drain_seconds)
        finally:
            self._others.pop(workload.id, None)
            self._changed()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            log.error("adopted_task_failed", exc_info=error)


def _spec(workload: pb.Workload) -> pb.ServingStack:
    return workload.engine.stack
