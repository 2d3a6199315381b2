"""Engines as processes: the driver of long-running workloads that serve a model."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.confinement import Confinement
from windlass.core import telemetry
from windlass.core.ids import is_identifier
from windlass.workload_phases import TERMINAL_PHASES
from windlass_agent.download import LocalObjects, ModelCache, no_objects
from windlass_agent.engines.load import EngineLoad
from windlass_agent.engines.port import EngineKind
from windlass_agent.engines.weights.trained import TrainedEngine
from windlass_agent.executors.gpu_meter import DeviceMeter
from windlass_agent.executors.process.allocator import SlotPool
from windlass_agent.executors.process.allotment import ResourceRequest
from windlass_agent.executors.process.engines.engine_house import EngineHouse
from windlass_agent.executors.process.engines.engine_process import (
    EngineProcess,
    has_learned,
    read_record,
)
from windlass_agent.executors.process.engines.engine_run import EngineRun
from windlass_agent.executors.process.engines.start_turns import StartTurns
from windlass_agent.executors.process.processes import kill_session
from windlass_agent.folders import private_folder
from windlass_agent.machine.gpu_use import gpu_uses
from windlass_agent.retrying import run_forever

log = telemetry.logger("engines")
PRUNE_SECONDS = 3600.0
# Loading a model keeps two busy.
CPUS_OF_A_START = 2


class _Place:
    """A workload, and its run while there is one."""

    def __init__(self, workload: pb.Workload, run: EngineRun | None = None):
        self.workload = workload
        self.run = run
        # Runs are replaced one after the other.
        self.turn = asyncio.Lock()

    @property
    def wanted(self) -> bool:
        return self.workload.desired == pb.DESIRED_STATE_RUNNING

    def status(self) -> pb.WorkloadStatus:
        if self.run is not None and self.wanted and self.run.fits(self.workload):
            status = self.run.status()
        else:
            status = pb.WorkloadStatus(phase=pb.PHASE_PENDING if self.wanted else pb.PHASE_STOPPED)
        if self.run is not None and not self.wanted:
            # Whatever it still does, no request should go there.
            status = pb.WorkloadStatus(phase=pb.PHASE_STOPPING)
        status.workload_id = self.workload.id
        status.generation = self.workload.generation
        return status


class EngineDriver:
    """A WorkloadDriver. `stop_on_close` ends the engines with the agent."""

    def __init__(
        self,
        *,
        data: Path,
        models: ModelCache,
        sockets: Path,
        places: SlotPool,
        share: ResourceRequest,
        drain_seconds: float,
        engines: Mapping[str, EngineKind],
        changed: Callable[[], None],
        stop_on_close: bool,
        confinement: Confinement,
        weights: Path | None = None,
        local_objects: LocalObjects = no_objects,
    ):
        self._models = models
        self._house = EngineHouse(
            folder=private_folder((data / "engines").resolve()),
            sockets=sockets,
            models=self._models,
            places=places,
            starts=StartTurns(max(1, places.allocator.machine.cpus // CPUS_OF_A_START)),
            share=share,
            drain_seconds=drain_seconds,
            engines=engines,
            confinement=confinement,
            gpus=DeviceMeter(gpu_uses),
            changed=changed,
            weights=weights,
            local_objects=local_objects,
        )
        self._stop_on_close = stop_on_close
        self._places: dict[str, _Place] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def apply(self, workload: pb.Workload) -> None:
        """Accepts the desired state of an engine; raises ValueError for an invalid id."""
        if not is_identifier(workload.id):
            raise ValueError(f"{workload.id!r} is not an identifier")
        place = self._places.get(workload.id)
        if place is None:
            if workload.desired == pb.DESIRED_STATE_DELETED:
                # What an earlier life of the agent left of it, for its next process.
                await asyncio.to_thread(self._house.files(workload.id).remove)
                return
            place = self._places[workload.id] = _Place(workload)
        elif workload.generation < place.workload.generation:
            return
        elif workload.HasField("engine"):
            place.workload = workload
        else:
            place.workload = _with_desire(place.workload, workload)
        if place.run is not None and place.run.fits(place.workload):
            place.run.apply(place.workload)
        else:
            self._spawn(self._bring(place))
        self._house.changed()

    def statuses(self) -> list[pb.WorkloadStatus]:
        """The status of every engine."""
        return [place.status() for place in self._places.values()]

    def trained(self, identifier: str) -> TrainedEngine | None:
        """Returns the way to train an engine; None while it does not serve.

        Raises LookupError for one that is not here, has ended, or may not be trained.
        """
        place = self._places.get(identifier)
        if place is None or not place.wanted or not place.workload.engine.training:
            raise LookupError(identifier)
        if place.status().phase in TERMINAL_PHASES:
            raise LookupError(identifier)
        return place.run.trained() if place.run is not None else None

    async def loads(self) -> dict[str, EngineLoad]:
        """Returns the load of each engine that serves, by its workload's id."""
        runs = {name: place.run for name, place in self._places.items() if place.run is not None}
        found = await asyncio.gather(*(run.load() for run in runs.values()))
        return {name: load for name, load in zip(runs, found, strict=True) if load is not None}

    async def adopt(self) -> None:
        """Takes over live engines and removes the remains of others."""
        for path in sorted(self._house.folder.glob("*.json")):
            files = self._house.files(path.stem)
            record = read_record(path)
            process = await asyncio.to_thread(EngineProcess.find, record, files) if record else None
            if record is None or process is None:
                if record is not None and record.pid:
                    # What an engine starts may outlive it where no walls end both.
                    await asyncio.to_thread(kill_session, record.pid, record.started)
                (files.rest if record and has_learned(record, files) else files.remove)()
                continue
            workload = pb.Workload.FromString(record.workload)
            run = EngineRun(workload, self._house, process=process, allotment=record.allotment)
            self._places[workload.id] = _Place(workload, run)
            log.info("engine_adopted", engine=workload.id)
        self._spawn(self._prune())
        self._spawn(run_forever("measuring_gpus", self._house.gpus.run))

    async def close(self) -> None:
        """Stops the driver's tasks, and the engines if so configured."""
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        leave = not self._stop_on_close
        runs = [place.run for place in self._places.values() if place.run]
        await asyncio.gather(*(run.end(drain=False, leave=leave) for run in runs))
        for place in self._places.values():
            # PENDING from now on: what is wanted waits for the next life of this agent.
            place.run = None

    async def _bring(self, place: _Place) -> None:
        """Ends a run that does not fit, then begins what is wanted by that time."""
        async with place.turn:
            if place.run is not None and not place.run.fits(place.workload):
                await place.run.end(drain=True)
                place.run = None
            if place.run is None and place.wanted:
                place.run = EngineRun(place.workload, self._house)
        if place.run is None and place.workload.desired == pb.DESIRED_STATE_DELETED:
            self._places.pop(place.workload.id, None)
        self._house.changed()

    async def _prune(self) -> None:
        while True:
            await self._models.prune()
            await asyncio.sleep(PRUNE_SECONDS)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            log.error("engine_task_failed", exc_info=error)


def _with_desire(known: pb.Workload, workload: pb.Workload) -> pb.Workload:
    """The known workload with a newer desired state that came without a spec."""
    merged = pb.Workload()
    merged.CopyFrom(known)
    merged.desired, merged.generation = workload.desired, workload.generation
    return merged
