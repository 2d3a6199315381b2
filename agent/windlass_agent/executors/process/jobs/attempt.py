"""One attempt of a job on this machine: waits for a slot, runs, ends, delivers its result."""

import asyncio
import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.api.jobs.v1 import jobs_pb2
from windlass.core import telemetry
from windlass.core.killpoints import reach
from windlass.core.rpc.auth import new_secret
from windlass_agent.control_plane.connection import ControlPlane
from windlass_agent.executors.process import processes
from windlass_agent.executors.process.allocator import SlotPool
from windlass_agent.executors.process.allotment import ResourceRequest
from windlass_agent.executors.process.jobs.delivery import AttemptDelivery
from windlass_agent.executors.process.jobs.records import AttemptRecord, Records
from windlass_agent.executors.process.jobs.runners import Runners
from windlass_agent.executors.process.jobs.spares import SpareRunner, Spares
from windlass_agent.executors.process.processes import Process
from windlass_agent.machine.path_redaction import redact_paths
from windlass_agent.machine.program_output import last_error, one_line, tail
from windlass_agent.memory import in_units, out_of_memory_kills
from windlass_agent.reconcile import Actual
from windlass_agent.runner_service import Registered, RunnerTokens

POLL_SECONDS = 0.1
# How long the end of an attempt waits for its result to be told.
RESULT_SECONDS = 10.0

log = telemetry.logger("attempt")


@dataclass(frozen=True, kw_only=True)
class AttemptContext:
    """Dependencies shared by all attempts of an agent."""

    records: Records
    places: SlotPool
    tokens: RunnerTokens
    control: ControlPlane
    runners: Runners
    spares: Spares
    drain_seconds: float
    changed: Callable[[], None]


class ProcessAttempt:
    """An attempt that waits for a slot, or that was adopted from its record."""

    def __init__(
        self, workload: pb.Workload, context: AttemptContext, *, record: AttemptRecord | None = None
    ):
        self._context = context
        self.name = context.records.name(workload)
        self.number = workload.job.attempt
        self._run = jobs_pb2.Run(job_id=workload.job.job_id, attempt=self.number)
        self._delivery = AttemptDelivery(
            self._run,
            self.name,
            records=context.records,
            control=context.control,
            superseded=self.kill,
        )
        self._record = record or AttemptRecord(
            workload=workload.SerializeToString(), token=new_secret("run-")
        )
        self._phase = cast("pb.Phase.ValueType", self._record.phase or pb.PHASE_PENDING)
        self._stop = asyncio.Event()
        self._kill = asyncio.Event()
        self._nudge = asyncio.Event()
        self._stop_reason = ""
        self._process: Process | None = None
        # It ended while no agent lived.
        self._lost = False
        self._oom_kills = 0
        self.ended = asyncio.Event()
        self.delivered = asyncio.Event()

    def actual(self) -> Actual:
        """The observed state, for the decision on it."""
        return Actual(
            attempt=self.number,
            alive=not self.ended.is_set(),
            stopping=self._stop.is_set(),
            killing=self._kill.is_set(),
        )

    def status(self) -> pb.WorkloadStatus:
        """The status for the control plane; id and generation are the caller's to fill."""
        if self._phase == pb.PHASE_PENDING:
            lack = self._context.places.lack(self.name)
            return pb.WorkloadStatus(
                phase=self._phase,
                reason="WaitingForRoom" if lack else "WaitingForSlot",
                message=lack or "Waiting for a slot",
                queue_position=self._context.places.position(self.name),
            )
        return pb.WorkloadStatus(
            phase=self._phase, reason=self._record.reason, message=self._record.message
        )

    @property
    def _walls(self) -> str:
        """The name that its walls were built under."""
        return self._record.spare or self.name

    @property
    def _asked(self) -> ResourceRequest:
        return ResourceRequest.of(self._record.decoded().resources)

    @property
    def started(self) -> bool:
        """True if a process of the attempt lives or is being started."""
        return self._phase in (pb.PHASE_STARTING, pb.PHASE_RUNNING, pb.PHASE_STOPPING)

    def stop(self, reason: str = "") -> None:
        """Asks the runner to save and exit; it is killed after the drain time."""
        self._stop_reason = reason
        self._stop.set()
        self._nudge.set()

    def kill(self) -> None:
        """Kills the runner."""
        self._kill.set()
        self._nudge.set()

    async def live(self) -> None:
        """Runs the attempt from its present state to its end, then delivers log and result.

        Cancelled, it leaves the process alone: a later life of the agent adopts it.
        """
        if not self._record.phase:
            registered = Registered(run=self._run, superseded=self.kill, trained=self._renew_spares)
            self._context.tokens.add(self._record.token, registered)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._delivery.log(self.ended))
                if not self._record.phase:
                    await self._run_to_end()
                self.ended.set()
                self._context.changed()
            await self._delivery.result()
            self._record.delivered = True
            self._context.records.save(self.name, self._record)
            reach("agent.delivered")
            self._context.records.clear(self.name)
            self._context.runners.confinement.forget(self._walls)
            self.delivered.set()
        finally:
            self._context.tokens.remove(self._record.token)
            self._context.places.release(self.name)

    async def _run_to_end(self) -> None:
        try:
            await self._run_process()
        except Exception as error:
            log.error("attempt_task_failed", attempt=self.name, exc_info=error)
            if self._record.pid:
                await self._kill_all(self._record.pid)
            said = f"The agent could not run the attempt: {type(error).__name__}: {error}"
            self._end(pb.PHASE_FAILED, "ExecutorError", said)

    async def _run_process(self) -> None:
        if self._lost:
            await self._conclude(None)
            return
        if self._process is None:
            if never := self._context.places.allocator.never(self._asked):
                self._end(pb.PHASE_FAILED, "NoRoom", never)
                return
            if not await self._get_place():
                self._end(pb.PHASE_STOPPED, "NeverStarted", "It was stopped before it started.")
                return
        if self._process is None:
            try:
                self._become(pb.PHASE_STARTING)
                spare = await self._context.spares.take(self._record.decoded())
                self._process = await asyncio.to_thread(self._start, spare)
            except OSError as error:
                if self._record.pid:
                    await self._kill_all(self._record.pid)
                self._end(pb.PHASE_FAILED, "StartFailed", f"The runner did not start: {error}")
                return
        self._become(pb.PHASE_RUNNING)
        await self._watch(self._process)
        reach("agent.runner_ended")
        await self._conclude(self._process.code())

    async def _conclude(self, code: int | None) -> None:
        """Ends the session, then tells the result, which says more than a status, first."""
        if self._record.pid:
            await self._kill_all(self._record.pid)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(RESULT_SECONDS):
                await self._delivery.result()
        reach("agent.result_told")
        output = tail(self._context.records.log(self.name))
        phase, reason, message = self._verdict(code, output)
        if phase == pb.PHASE_FAILED:
            # Its folder goes once it is delivered; its tenant reads one sentence of this.
            log.warning(
                "attempt_failed", attempt=self.name, reason=reason, message=message, output=output
            )
        self._end(phase, reason, message)
        self._renew_spares()

    def _renew_spares(self) -> None:
        self._context.spares.renew(self._record.decoded())

    async def _get_place(self) -> bool:
        """Waits for its share of the machine; False when it should stop instead."""
        self._context.changed()
        place = asyncio.create_task(self._context.places.acquire(self.name, self._asked))
        nudge = asyncio.create_task(self._nudge.wait())
        try:
            await asyncio.wait({place, nudge}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (place, nudge):
                task.cancel()
            await asyncio.gather(place, nudge, return_exceptions=True)
        if self._nudge.is_set():
            return False
        self._record.allotment = place.result()
        return True

    def _start(self, spare: SpareRunner | None) -> Process:
        records = self._context.records
        self._oom_kills = self._memory_kills()
        records.clear(self.name)
        reach("agent.claimed")
        process = self._hand_over(spare) if spare else None
        if process is None:
            process = self._start_anew()
        reach("agent.runner_started")
        self._record.started = processes.start_time(process.pid)
        self._record.pid = process.pid
        records.save(self.name, self._record)
        return process

    def _hand_over(self, spare: SpareRunner) -> Process | None:
        """Makes a spare this attempt's runner; None when it is gone meanwhile."""
        # First of all: an agent that dies here finds the process by it.
        self._record.spare = spare.name
        try:
            self._context.records.save(self.name, self._record)
            reach("agent.recorded")
            self._context.records.workdir(self.name).symlink_to(spare.folder)
            self._oom_kills = self._memory_kills()
            spare.hand_over(self._record.token)
        except OSError as error:
            log.warning("spare_trainer_lost", attempt=self.name, reason=str(error))
            self._context.spares.drop(spare)
            self._context.records.clear(self.name)
            self._record.spare = ""
            return None
        return spare.process

    def _start_anew(self) -> Process:
        self._context.records.save(self.name, self._record)
        reach("agent.recorded")
        reader, writer = os.pipe()
        try:
            with os.fdopen(writer, "wb") as token:
                token.write(self._record.token.encode())
            return self._context.runners.start(
                self.name,
                self._context.records.workdir(self.name),
                resources=self._record.decoded().resources,
                allotment=self._record.allotment,
                token=reader,
            )
        finally:
            os.close(reader)

    def adopt(self) -> bool:
        """Takes over an attempt of an earlier agent process; False if it never started."""
        if self._record.phase:
            self.ended.set()
            if self._record.delivered:
                self.delivered.set()
            return True
        records = self._context.records
        workdir = records.workdir(self.name)
        if self._record.spare:
            workdir = self._context.spares.folder(self._record.spare)
        self._process = processes.find(
            self._record.pid, self._record.started, argument=str(workdir)
        )
        if self._process is not None:
            self._record.pid = self._process.pid
            self._record.started = processes.start_time(self._record.pid)
            self._context.places.take(self.name, self._record.allotment)
            self._become(pb.PHASE_RUNNING)
            return True
        self._lost = bool(self._record.pid or records.exit(self.name))
        if self._lost:
            self._phase = pb.PHASE_RUNNING
        return self._lost

    async def _watch(self, process: Process) -> None:
        """Waits until the leader has ended."""
        loop, deadline = asyncio.get_running_loop(), None
        while not process.ended():
            if self._stop.is_set() and deadline is None:
                deadline = loop.time() + self._context.drain_seconds
                self._become(pb.PHASE_STOPPING)
                processes.terminate(process)
            if self._kill.is_set() or (deadline is not None and loop.time() > deadline):
                await self._kill_all(process.pid)
            try:
                async with asyncio.timeout(POLL_SECONDS):
                    await self._nudge.wait()
                self._nudge.clear()
            except TimeoutError:
                continue

    async def _kill_all(self, pid: int) -> None:
        await asyncio.to_thread(processes.kill_session, pid, self._record.started)

    def _verdict(self, code: int | None, output: str) -> "tuple[pb.Phase.ValueType, str, str]":
        """Phase, reason and message of the end."""
        left = self._context.records.exit(self.name)
        if left is not None:
            reason = self._stop_reason if left.phase == pb.PHASE_STOPPED else left.error_code
            return left.phase, reason, left.error_message
        if self._kill.is_set() or self._stop.is_set():
            return (
                pb.PHASE_STOPPED,
                self._stop_reason or "Killed",
                "It was killed without time to save its state.",
            )
        if code is None:
            return pb.PHASE_FAILED, "RunnerLost", "The runner ended while its agent was away."
        if self._memory_kills() > self._oom_kills:
            return pb.PHASE_FAILED, "OutOfMemory", self._out_of_memory_message()
        if code < 0:
            return pb.PHASE_FAILED, "ProcessKilled", f"The runner was killed by signal {-code}."
        error = last_error(redact_paths(output, self._context.records.workdir(self.name)))
        last = f" Its last output: {error}" if error else ""
        said = f"The runner ended with {code} and no result.{last}"
        return pb.PHASE_FAILED, "ProcessExited", said

    def _out_of_memory_message(self) -> str:
        if asked := self._record.allotment.memory_bytes:
            return (
                f"The job took more than the {in_units(asked)} of memory that it asked for "
                "(windlass.resources.memory_bytes)."
            )
        return "The job was killed because the machine ran out of memory."

    def _memory_kills(self) -> int:
        return out_of_memory_kills() + self._context.runners.confinement.kills(self._walls)

    def _become(self, phase: "pb.Phase.ValueType") -> None:
        self._phase = phase
        self._context.changed()

    def _end(self, phase: "pb.Phase.ValueType", reason: str, message: str) -> None:
        self._record.phase, self._record.reason = phase, reason
        self._record.message = one_line(message, characters=2000)
        try:
            self._context.records.save(self.name, self._record)
        except OSError as error:
            log.error("exit_record_failed", attempt=self.name, exc_info=error)
        reach("agent.end_recorded")
        self._context.places.release(self.name)
        self._become(phase)
