"""Folders, places and limits that all engines of an agent share."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from windlass.confinement import Confinement
from windlass_agent.download import LocalObjects, ModelCache, no_objects
from windlass_agent.engines.port import EngineKind
from windlass_agent.executors.gpu_meter import DeviceMeter
from windlass_agent.executors.process.allocator import SlotPool
from windlass_agent.executors.process.allotment import ResourceRequest
from windlass_agent.executors.process.engines.engine_process import EngineFiles
from windlass_agent.executors.process.engines.start_turns import StartTurns


@dataclass(frozen=True, kw_only=True)
class EngineHouse:
    """Dependencies shared by all engines of an agent."""

    folder: Path
    sockets: Path
    models: ModelCache
    places: SlotPool
    starts: StartTurns
    # What an engine gets of the machine that is not told otherwise.
    share: ResourceRequest
    # How long open requests keep an engine that should end.
    drain_seconds: float
    engines: Mapping[str, EngineKind]
    confinement: Confinement
    gpus: DeviceMeter
    changed: Callable[[], None]
    # Folders of weight versions that a volume has, or this machine's memory.
    weights: Path | None = None
    local_objects: LocalObjects = no_objects

    def files(self, workload_id: str) -> EngineFiles:
        """The files of an engine; the socket's name is short whatever the id."""
        name = hashlib.sha256(workload_id.encode()).hexdigest()[:16]
        return EngineFiles(
            record=self.folder / f"{workload_id}.json",
            log=self.folder / f"{workload_id}.log",
            socket=self.sockets / f"e-{name}" / "s",
            adapters=self.folder / f"{workload_id}.adapters",
            weights=self.folder / f"{workload_id}.weights",
        )
