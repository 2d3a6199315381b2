"""One engine on this machine: fetches its model, runs, and is restarted after a crash."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import asdict
from functools import partial
from pathlib import Path

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.api.models.v1 import models_pb2
from windlass.core import telemetry
from windlass.engine_arguments import from_message
from windlass.modelfiles.vision import reads_images
from windlass_agent.download import bytes_of, versions_of
from windlass_agent.engines.adapters import AdapterSet
from windlass_agent.engines.load import EngineLoad
from windlass_agent.engines.metering import EngineMeter
from windlass_agent.engines.port import (
    CapabilityMissing,
    EngineControl,
    EngineError,
    EngineKind,
    EngineSpec,
    TrainingAccess,
)
from windlass_agent.engines.shelf import Shelf
from windlass_agent.engines.weights.following import WeightFollower
from windlass_agent.engines.weights.trained import TrainedEngine
from windlass_agent.executors import memory_advice
from windlass_agent.executors.process.allotment import Allotment
from windlass_agent.executors.process.engines import placing, readiness
from windlass_agent.executors.process.engines.draining import drained
from windlass_agent.executors.process.engines.engine_failure import EngineFailure, reason_of
from windlass_agent.executors.process.engines.engine_house import EngineHouse
from windlass_agent.executors.process.engines.engine_process import EngineProcess
from windlass_agent.executors.process.engines.sleeping import EngineSleep
from windlass_agent.machine.program_output import one_line
from windlass_agent.memory import in_units

log = telemetry.logger("engines")
# An engine that lived shorter has failed to start, whatever it said.
SETTLED_SECONDS = 30.0
QUICK_FAILURES = 2
RUNNING_POLL_SECONDS = 0.2
RESTART_SECONDS = 1.0
MESSAGE_LENGTH = 2000
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
        self.workload = workload
        self._house = house
        self._files = house.files(workload.id)
        self._process = process
        self._allotment = allotment or Allotment()
        if process is not None:
            house.places.take(workload.id, self._allotment)
        self._phase: pb.Phase.ValueType = pb.PHASE_STARTING if process else pb.PHASE_PENDING
        self._reason = self._message = ""
        self._endpoint = ""
        # While it serves.
        self._control: EngineControl | None = None
        self._capabilities = pb.EngineCapabilities()
        self._meter = EngineMeter(house.changed, lambda: house.gpus.use(self._allotment.devices))
        shelf = Shelf(self._files.adapters, house.confinement)
        self._adapters = AdapterSet(house.models, shelf, house.changed)
        self._weights = WeightFollower(
            self._files.weights,
            house.confinement,
            house.changed,
            media=house.weights,
            local=house.local_objects,
        )
        self._quick_failures = 0
        # Whether the workload is what the control plane wants now; that of a record is older.
        self._is_told = process is None
        self._task = asyncio.create_task(self._live(), name=f"engine {workload.id}")

    def apply(self, workload: pb.Workload) -> None:
        """Applies newer adapters, weights and URLs, and whether it should sleep."""
        self.workload, self._is_told = workload, True
        self._adapters.want(workload.engine.adapters)
        self._weights.want(workload.engine.followed)

    def fits(self, workload: pb.Workload) -> bool:
        """True if the workload's spec can be applied to this run without a restart."""
        same = _lasting(self.workload.engine) == _lasting(workload.engine)
        again = self.workload.generation == workload.generation
        wanted = workload.desired == pb.DESIRED_STATE_RUNNING
        return wanted and same and (again or self._phase != pb.PHASE_FAILED)

    def status(self) -> pb.WorkloadStatus:
        """The status; id and generation are the caller's to fill."""
        running = self._phase == pb.PHASE_RUNNING
        if running:
            self._weights.told(self._capabilities)
        waits_for_gpus = self._house.places.waits_for_gpus(self.workload.id)
        return pb.WorkloadStatus(
            phase=self._phase,
            reason="WaitingForGpu" if waits_for_gpus else self._reason,
            message=self._house.places.lack(self.workload.id) or self._message,
            queue_position=self._house.places.position(self.workload.id),
            endpoint=self._endpoint,
            adapters=self._adapters.statuses() if running else (),
            capabilities=self._capabilities if running else None,
            load=self._meter.load() if running else None,
            weights_error=self._weights.error if running else "",
        )

    async def load(self) -> EngineLoad | None:
        """Returns its load; None where it does not serve, or does not say."""
        if self._control is None:
            return None
        try:
            return await self._control.load()
        except EngineError as error:
            log.info("engine_load_unknown", engine=self.workload.id, error=str(error))
            return None

    def trained(self) -> TrainedEngine | None:
        """Returns the way to train it; None while it does not serve, or may not be trained."""
        if self._control is None or self._process is None or not self._process.training_key:
            return None
        access = TrainingAccess(key=self._process.training_key, checkpoints=self._files.checkpoints)
        return TrainedEngine(self._endpoint, access)

    async def end(self, *, drain: bool, leave: bool = False) -> None:
        """Ends the run and its process; `leave` lets the process live for the next agent.

        With `drain`, requests that are open go on to their ends, within bounds; whoever sends new
        ones knows already that the engine stops. Without, another life of the agent starts it
        again, and what it has learned stays on the disk.
        """
        trained = self.trained()
        served = self._phase in (pb.PHASE_RUNNING, pb.PHASE_SLEEPING)
        self._become(pb.PHASE_STOPPING)
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        if drain and served and self._process is not None:
            control = self._kind().control(f"unix://{self._files.socket}")
            await drained(control, self._process, self._house.drain_seconds)
            await control.close()
        if not leave:
            kept = not drain and trained is not None and await trained.save(SAVE_SECONDS)
            await self._end_process(graceful=drain)
            (self._files.rest if kept else self._files.remove)()
        self._house.places.release(self.workload.id)
        self._become(pb.PHASE_STOPPED)

    async def _live(self) -> None:
        identifier = self.workload.id
        try:
            with self._house.models.using(*versions_of(self.workload.engine)):
                if self._process is None:
                    self._allotment = await self._get_place()
                while True:
                    await self._live_once()
        except Exception as error:
            # Whatever it was: an engine without its keeper would be an orphan.
            await self._end_process()
            self._house.places.release(identifier)
            foreseen = isinstance(error, EngineFailure)
            log.warning("engine_failed", engine=identifier, exc_info=None if foreseen else error)
            message = one_line(str(error), characters=MESSAGE_LENGTH)
            self._become(pb.PHASE_FAILED, reason_of(error), message)

    async def _get_place(self) -> Allotment:
        """Waits for its share of the machine; raises EngineFailure where there is no such share."""

        def waits() -> None:
            self._become(pb.PHASE_PENDING, "WaitingForSlot", "Waiting for a slot")

        return await placing.get_place(self.workload, self._kind(), self._house, waits)

    def _kind(self) -> EngineKind:
        """The kind of the engine; raises EngineFailure for one that is not installed here."""
        name, nodes = self.workload.engine.engine, self.workload.engine.nodes
        if (kind := self._house.engines.get(name)) is None or nodes > 1:
            said = f"The engine {name!r} is not installed on this machine."
            several = "This machine runs no engine together with others."
            raise EngineFailure("NotInstalled", several if nodes > 1 else said)
        try:
            return kind.trained() if self.workload.engine.training else kind
        except CapabilityMissing as error:
            raise EngineFailure("TrainingUnavailable", f"{error}.") from error

    async def _live_once(self) -> None:
        """Runs one process until it ends by itself; raises EngineFailure after too many."""
        engine = self._kind()
        clock = asyncio.get_running_loop().time
        control = engine.control(f"unix://{self._files.socket}")
        ready_at = None
        try:
            process, is_ready = await self._come_up(engine, control)
            if is_ready:
                ready_at = clock()
                await self._serve(process, control)
        finally:
            self._endpoint, self._control = "", None
            await control.close()
        lived = clock() - ready_at if ready_at is not None else 0.0
        self._quick_failures = 0 if lived > SETTLED_SECONDS else self._quick_failures + 1
        words, refused = process.last_words(), ready_at is None and process.refused()
        if killed := self._house.confinement.kills(self._files.name):
            words = _TOO_MUCH.format(in_units(self._allotment.limits().memory))
            refused = ready_at is None
        log.warning("engine_ended", engine=self.workload.id, message=words, output=process.output())
        await self._end_process()
        if refused or self._quick_failures >= QUICK_FAILURES:
            if memory_advice.ran_out(words):
                # Whoever is killed for it has used too much of its machine's, not of its GPUs'.
                advised = memory_advice.advice(
                    self.workload.engine,
                    gpus=[] if killed else [one.memory_bytes for one in self._allotment.devices],
                    memory=self._allotment.limits().memory,
                    setting="agent.engine_memory_bytes",
                )
                raise EngineFailure("OutOfMemory", f"{words} {advised}")
            raise EngineFailure("ProcessExited", words)
        self._become(pb.PHASE_STARTING, "Restarting", words)
        await asyncio.sleep(RESTART_SECONDS)

    async def _come_up(
        self, engine: EngineKind, control: EngineControl
    ) -> tuple[EngineProcess, bool]:
        """Starts the process in its turn, unless it runs; returns it, and False if it ended."""
        if self._process is not None:
            return self._process, await self._wait(self._process, control.ready)
        await self._regain_gpus()
        self._become(pb.PHASE_STARTING, "Downloading", "")
        folders = [await self._fetch(one) for one in versions_of(self.workload.engine)]
        async with self._house.starts.turn(self._wait_turn):
            self._become(pb.PHASE_STARTING, "Loading", "")
            self._process = self._begin(engine, *folders)
            return self._process, await self._wait(
                self._process,
                partial(readiness.warmed, control, self.workload.engine, self._note_failing),
            )

    async def _regain_gpus(self) -> None:
        """Waits until an engine that ended in its sleep is needed, and has its GPUs again."""
        places, identifier = self._house.places, self.workload.id
        if places.lends(identifier) and self.workload.engine.asleep:
            self._become(pb.PHASE_SLEEPING)
            while self.workload.engine.asleep:  # noqa: ASYNC110
                await asyncio.sleep(RUNNING_POLL_SECONDS)
        self._become(pb.PHASE_STARTING)
        await places.take_back(identifier)

    def _note_failing(self, message: str) -> None:
        self._become(
            pb.PHASE_STARTING, "NotAnswering", one_line(message, characters=MESSAGE_LENGTH)
        )

    async def _fetch(self, version_id: str) -> Path:
        def files() -> Iterable[models_pb2.FileUrl]:
            return versions_of(self.workload.engine)[version_id]

        return await self._house.models.fetch(version_id, files(), renewed=files)

    def _wait_turn(self) -> None:
        waiting = "Waiting until other engines of the machine have started"
        self._become(pb.PHASE_STARTING, "WaitingToStart", waiting)

    def _begin(self, engine: EngineKind, model: Path, draft: Path | None = None) -> EngineProcess:
        return EngineProcess.start(
            engine,
            EngineSpec(
                model_dir=model,
                draft_dir=draft,
                served_name=self.workload.engine.model,
                endpoint=f"unix://{self._files.socket}",
                max_adapters=max(1, self.workload.engine.max_adapters),
                arguments=from_message(self.workload.engine.arguments),
                cpus=self._allotment.cpus,
                gpus=len(self._allotment.devices),
                sleeps=self.workload.engine.sleeps,
                scratch=self._files.socket.parent,
                training=self._new_access(),
            ),
            files=self._files,
            workload=self.workload.SerializeToString(),
            allotment=self._allotment,
            confinement=self._house.confinement,
        )

    def _new_access(self) -> TrainingAccess | None:
        if not self.workload.engine.training:
            return None
        return TrainingAccess(key=secrets.token_hex(32), checkpoints=self._files.checkpoints)

    async def _wait(self, process: EngineProcess, answers: Callable[[], Awaitable[bool]]) -> bool:
        """Waits until it answers; returns False if it ended first, raises EngineFailure if late."""
        try:
            return await readiness.until_answering(process, self._files.socket, answers)
        except TimeoutError as error:
            raise EngineFailure("StartFailed", f"{error} {self._message}".strip()) from error

    async def _serve(self, process: EngineProcess, control: EngineControl) -> None:
        """Answers, and sleeps when asked to, until the process ends or does not answer."""
        spec, served = self.workload.engine, await control.served()
        model = self._house.models.path(spec.model_version_id)
        vision = await asyncio.to_thread(reads_images, model)
        served = served.chosen(
            from_message(spec.arguments),
            sleeps=spec.sleeps,
            vision=vision,
            training=bool(spec.training),
        )
        self._capabilities = pb.EngineCapabilities(**asdict(served))
        if spec.sleeps and not self._is_told:
            spec.asleep = await control.asleep()

        async def recheck() -> None:
            await control.warm(spec.model, spec.arguments.task)
            if served.adapters:
                await self._adapters.resync(control)

        sleep = EngineSleep(
            workload_id=self.workload.id,
            control=control,
            process=process,
            places=self._house.places,
            weight_bytes=bytes_of(spec),
            wanted=lambda: self.workload.engine.asleep,
            become=self._become,
            recheck=recheck,
        )
        goes_on = True
        while goes_on and not process.ended():
            # One that was adopted may sleep although it is asked for, and another have its GPUs.
            goes_on = not spec.sleeps or await sleep.through()
            if goes_on and self._should_answer(process):
                goes_on = await self._answer(process, control)
        self._adapters.forget()
        self._weights.forget()
        # Whoever sends requests hears so before its process has ended, which a device may delay.
        words = "" if process.ended() else process.last_words()
        self._become(pb.PHASE_STARTING, "Restarting", words)

    async def _answer(self, process: EngineProcess, control: EngineControl) -> bool:
        """Answers until it should sleep; returns False once the engine does not."""
        if self._is_told:
            self._adapters.want(self.workload.engine.adapters)
            self._weights.want(self.workload.engine.followed)
        # Before the first request, so that none is answered by older weights if they are there.
        await self._weights.take(control, able=self._capabilities.weight_updates)
        self._endpoint, self._control = f"unix://{self._files.socket}", control
        self._become(pb.PHASE_RUNNING)
        async with asyncio.TaskGroup() as group:
            keeping = [group.create_task(self._meter.keep(self.workload.id, control))]
            following = self._weights.keep(control, able=self._capabilities.weight_updates)
            keeping.append(group.create_task(following))
            if self._capabilities.adapters:
                keeping.append(group.create_task(self._adapters.keep(control)))
            probing = group.create_task(readiness.until_silent(process, control))
            while self._should_answer(process) and not probing.done():  # noqa: ASYNC110
                await asyncio.sleep(RUNNING_POLL_SECONDS)
            answers = not probing.done()
            for task in (*keeping, probing):
                task.cancel()
        self._endpoint, self._control = "", None
        return answers

    def _should_answer(self, process: EngineProcess) -> bool:
        return not (process.ended() or self.workload.engine.asleep)

    async def _end_process(self, *, graceful: bool = False) -> None:
        if self._process is not None:
            await self._process.end(graceful=graceful)
            self._process = None
        self._house.confinement.forget(self._files.name)

    def _become(self, phase: "pb.Phase.ValueType", reason: str = "", message: str = "") -> None:
        self._phase, self._reason, self._message = phase, reason, message
        self._house.changed()


def _lasting(spec: pb.EngineWorkload) -> pb.EngineWorkload:
    """The part of a spec that an engine keeps from its start to its end."""
    kept = pb.EngineWorkload()
    kept.CopyFrom(spec)
    kept.ClearField("adapters")
    kept.ClearField("followed")
    kept.ClearField("model_files")
    kept.ClearField("draft_files")
    kept.ClearField("asleep")
    return kept
