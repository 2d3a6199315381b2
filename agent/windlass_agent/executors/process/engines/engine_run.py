"""One engine on this machine: starts, serves, and is restarted after a crash until its end."""

import asyncio

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.core import telemetry
from windlass_agent.download import versions_of
from windlass_agent.engines.load import EngineLoad
from windlass_agent.engines.port import TrainingAccess
from windlass_agent.engines.weights.trained import TrainedEngine
from windlass_agent.executors import memory_advice
from windlass_agent.executors.process.allotment import Allotment
from windlass_agent.executors.process.engines.draining import drained
from windlass_agent.executors.process.engines.engine_failure import EngineFailure, reason_of
from windlass_agent.executors.process.engines.engine_house import EngineHouse
from windlass_agent.executors.process.engines.engine_process import EngineProcess
from windlass_agent.executors.process.engines.engine_service import ServedEngineRun
from windlass_agent.executors.process.engines.engine_start import MESSAGE_LENGTH, EngineStart
from windlass_agent.executors.process.engines.engine_state import EngineState
from windlass_agent.machine.program_output import one_line
from windlass_agent.memory import in_units

log = telemetry.logger("engines")
# An engine that lived shorter has failed to start, whatever it said.
SETTLED_SECONDS = 30.0
QUICK_FAILURES = 2
RESTART_SECONDS = 1.0
SAVE_SECONDS = 30.0
_TOO_MUCH = "The engine ran out of memory: it may use {} of its machine's."


class EngineRun:
    """The run of an engine from its desired start until `end`."""

    def __init__(
        self,
        workload: pb.Workload,
        house: EngineHouse,
        *,
        process: EngineProcess | None = None,
        allotment: Allotment | None = None,
    ):
        """`process` runs already, with that allotment."""
        self._house = house
        self._files = house.files(workload.id)
        allotment = allotment or Allotment()
        if process is not None:
            house.places.take(workload.id, allotment)
        self._state = EngineState(workload, house.changed, process=process, allotment=allotment)
        self._start = EngineStart(self._state, house)
        self._service = ServedEngineRun(self._state, house)
        self._quick_failures = 0
        self._task = asyncio.create_task(self._live(), name=f"engine {workload.id}")

    @property
    def workload(self) -> pb.Workload:
        """The workload that it runs."""
        return self._state.workload

    def apply(self, workload: pb.Workload) -> None:
        """Applies newer adapters, weights and URLs, and whether it should sleep."""
        self._state.want(workload)
        self._service.want()

    def fits(self, workload: pb.Workload) -> bool:
        """True if the workload's spec can be applied to this run without a restart."""
        return self._state.fits(workload)

    def status(self) -> pb.WorkloadStatus:
        """The status; id and generation are the caller's to fill."""
        state, places, identifier = self._state, self._house.places, self.workload.id
        status = pb.WorkloadStatus(
            phase=state.phase,
            reason="WaitingForGpu" if places.waits_for_gpus(identifier) else state.reason,
            message=places.lack(identifier) or state.message,
            queue_position=places.position(identifier),
            endpoint=self._service.endpoint,
        )
        if state.phase == pb.PHASE_RUNNING:
            self._service.add_to(status)
        return status

    async def load(self) -> EngineLoad | None:
        """Returns its load; None where it does not serve, or does not say."""
        return await self._service.load()

    def trained(self) -> TrainedEngine | None:
        """Returns the way to train it; None while it does not serve, or may not be trained."""
        process, endpoint = self._state.process, self._service.endpoint
        if not endpoint or process is None or not process.training_key:
            return None
        access = TrainingAccess(key=process.training_key, checkpoints=self._files.checkpoints)
        return TrainedEngine(endpoint, access)

    async def end(self, *, drain: bool, leave: bool = False) -> None:
        """Ends the run and its process; `leave` lets the process live for the next agent.

        With `drain`, requests that are open go on to their ends, within bounds; whoever sends new
        ones knows already that the engine stops. Without, another life of the agent starts it
        again, and what it has learned stays on the disk.
        """
        state, trained = self._state, self.trained()
        served = state.phase in (pb.PHASE_RUNNING, pb.PHASE_SLEEPING)
        state.become(pb.PHASE_STOPPING)
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        if drain and served and state.process is not None:
            control = self._start.kind().control(f"unix://{self._files.socket}")
            await drained(control, state.process, self._house.drain_seconds)
            await control.close()
        if not leave:
            kept = not drain and trained is not None and await trained.save(SAVE_SECONDS)
            await self._end_process(graceful=drain)
            (self._files.rest if kept else self._files.remove)()
        self._house.places.release(self.workload.id)
        state.become(pb.PHASE_STOPPED)

    async def _live(self) -> None:
        identifier = self.workload.id
        try:
            with self._house.models.using(*versions_of(self._state.spec)):
                if self._state.process is None:
                    await self._start.get_place()
                while True:
                    await self._live_once()
        except Exception as error:
            # Whatever it was: an engine without its keeper would be an orphan.
            await self._end_process()
            self._house.places.release(identifier)
            foreseen = isinstance(error, EngineFailure)
            log.warning("engine_failed", engine=identifier, exc_info=None if foreseen else error)
            message = one_line(str(error), characters=MESSAGE_LENGTH)
            self._state.become(pb.PHASE_FAILED, reason_of(error), message)

    async def _live_once(self) -> None:
        """Runs one process until it ends by itself; raises EngineFailure after too many."""
        engine = self._start.kind()
        clock = asyncio.get_running_loop().time
        control = engine.control(f"unix://{self._files.socket}")
        ready_at = None
        try:
            process, is_ready = await self._start.bring_up(engine, control)
            if is_ready:
                ready_at = clock()
                await self._service.serve(process, control)
        finally:
            self._service.stop()
            await control.close()
        lived = clock() - ready_at if ready_at is not None else 0.0
        self._quick_failures = 0 if lived > SETTLED_SECONDS else self._quick_failures + 1
        words = await self._bury(process, was_ready=ready_at is not None)
        self._state.become(pb.PHASE_STARTING, "Restarting", words)
        await asyncio.sleep(RESTART_SECONDS)

    async def _bury(self, process: EngineProcess, *, was_ready: bool) -> str:
        """Says how a process ended; raises EngineFailure where another one would end so too."""
        state = self._state
        memory = state.allotment.limits().memory
        words, refused = process.last_words(), not was_ready and process.refused()
        if killed := self._house.confinement.kills(self._files.name):
            words, refused = _TOO_MUCH.format(in_units(memory)), not was_ready
        log.warning("engine_ended", engine=self.workload.id, message=words, output=process.output())
        await self._end_process()
        if not refused and self._quick_failures < QUICK_FAILURES:
            return words
        if memory_advice.ran_out(words):
            # Whoever is killed for it has used too much of its machine's, not of its GPUs'.
            advised = memory_advice.advice(
                state.spec,
                gpus=[] if killed else [one.memory_bytes for one in state.allotment.devices],
                memory=memory,
                setting="agent.engine_memory_bytes",
            )
            raise EngineFailure("OutOfMemory", f"{words} {advised}")
        raise EngineFailure("ProcessExited", words)

    async def _end_process(self, *, graceful: bool = False) -> None:
        if self._state.process is not None:
            await self._state.process.end(graceful=graceful)
            self._state.process = None
        self._house.confinement.forget(self._files.name)
