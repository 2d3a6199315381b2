"""The engine of a pod as its keeper sees and steers it."""

import asyncio
import contextlib
from dataclasses import asdict
from pathlib import Path

from windlass.api.clusters.v1 import clusters_pb2
from windlass.api.keeper.v1 import keeper_pb2 as pb
from windlass.confinement import Bare
from windlass.core import telemetry
from windlass.core.backoff import Backoff
from windlass_agent.download import DownloadError, ModelCache
from windlass_agent.engines.adapters import AdapterSet
from windlass_agent.engines.endpoint import parse_endpoint
from windlass_agent.engines.port import EngineControl, EngineError, EngineKind
from windlass_agent.engines.shelf import Shelf
from windlass_agent.folders import private_folder
from windlass_agent.machine.program_output import one_line

log = telemetry.logger("keeper")
LOOK_SECONDS = 0.3
# Without an answer for so long, the engine's container is to be started anew.
UNANSWERED_SECONDS = 120.0
PROBE_SECONDS = 10.0
PRUNE_SECONDS = 3600.0
MESSAGE_LENGTH = 2000


class EngineKeeper:
    """Brings files to the engine, waits until it answers, and keeps its adapters.

    `endpoint` is where it listens within the pod. `changed` is set when `state` may differ.
    """

    def __init__(self, kind: EngineKind, *, endpoint: str, weights: Path):
        self._kind = kind
        self._endpoint = endpoint
        self.changed = asyncio.Event()
        # A folder of the pod's own, which the engine's container can read.
        self._models = ModelCache(weights / "models")
        shelf = Shelf(private_folder(weights / "adapters"), Bare())
        self._adapters = AdapterSet(self._models, shelf, self.changed.set)
        # Empty before the first order.
        self._spec = clusters_pb2.EngineWorkload()
        self._ordered = asyncio.Event()
        self._state = pb.EngineState(phase=clusters_pb2.PHASE_STARTING, reason="Starting")
        # Set once the weights are on disk, so that the engine may start.
        self.has_weights = asyncio.Event()
        self.unanswered = False

    @property
    def serves(self) -> bool:
        """True if requests can be sent to the engine."""
        return self._state.phase == clusters_pb2.PHASE_RUNNING

    def state(self) -> pb.EngineState:
        """The present state of the engine."""
        state = pb.EngineState()
        state.CopyFrom(self._state)
        if self.serves:
            state.adapters.extend(self._adapters.statuses())
        return state

    def order(self, spec: clusters_pb2.EngineWorkload) -> None:
        """Takes the engine's adapters, and URLs that are good now."""
        self._spec = spec
        self._adapters.want(spec.adapters)
        self._ordered.set()

    async def run(self) -> None:
        """Keeps the engine until cancelled."""
        control = self._kind.control(self._endpoint)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._prune())
                await self._fetch()
                while True:
                    self._become(clusters_pb2.PHASE_STARTING, "Loading")
                    await self._until_ready(control)
                    await self._serve(control)
        finally:
            await control.close()

    async def _fetch(self) -> None:
        """Brings the weights; with the URLs of each order anew until they are there."""
        pauses = Backoff(shortest=1.0, longest=30.0)
        while True:
            await self._ordered.wait()
            self._ordered.clear()
            spec = self._spec
            self._become(clusters_pb2.PHASE_STARTING, "Downloading")
            try:
                await self._models.fetch(spec.model_version_id, spec.model_files)
            except DownloadError as error:
                message = one_line(str(error), characters=MESSAGE_LENGTH)
                log.warning("weights_not_fetched", message=message)
                self._become(clusters_pb2.PHASE_FAILED, "DownloadFailed", message)
                await pauses.pause()
                continue
            self.has_weights.set()
            return

    async def _until_ready(self, control: EngineControl) -> None:
        # Another container's process: nothing announces it.
        while not (await self._listens() and await control.ready()):  # noqa: ASYNC110
            await asyncio.sleep(LOOK_SECONDS)

    async def _serve(self, control: EngineControl) -> None:
        """Keeps its adapters until it is gone."""
        try:
            served = await control.served()
        except EngineError as error:
            log.warning("engine_not_ready", error=str(error))
            return
        self._adapters.want(self._spec.adapters)
        capabilities = clusters_pb2.EngineCapabilities(**asdict(served))
        self._state = pb.EngineState(phase=clusters_pb2.PHASE_RUNNING, capabilities=capabilities)
        self.changed.set()
        with self._models.using(self._spec.model_version_id):
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._probe(control))]
                if served.adapters:
                    tasks.append(group.create_task(self._adapters.keep(control)))
                while await self._listens():  # noqa: ASYNC110
                    await asyncio.sleep(LOOK_SECONDS)
                for task in tasks:
                    task.cancel()
        self._adapters.forget()
        self.unanswered = False

    async def _listens(self) -> bool:
        """Returns True if somebody accepts connections where the engine should."""
        address = parse_endpoint(self._endpoint)
        try:
            _, writer = await asyncio.open_connection(address.host, address.port)
        except OSError:
            return False
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
        return True

    async def _probe(self, control: EngineControl) -> None:
        clock = asyncio.get_running_loop().time
        answered = clock()
        while True:
            await asyncio.sleep(PROBE_SECONDS)
            if await control.ready():
                answered = clock()
            self.unanswered = clock() - answered > UNANSWERED_SECONDS

    async def _prune(self) -> None:
        while True:
            await asyncio.sleep(PRUNE_SECONDS)
            await self._models.prune()

    def _become(
        self, phase: "clusters_pb2.Phase.ValueType", reason: str, message: str = ""
    ) -> None:
        self._state = pb.EngineState(phase=phase, reason=reason, message=message)
        self.changed.set()
