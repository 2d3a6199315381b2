"""The engine of a pod as its keeper sees and steers it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict
from pathlib import Path

from windlass.api.clusters.v1 import clusters_pb2
from windlass.api.keeper.v1 import keeper_pb2 as pb
from windlass.confinement import Bare
from windlass.core import telemetry
from windlass.core.backoff import Backoff
from windlass.engine_arguments import from_message
from windlass.modelfiles.vision import reads_images
from windlass_agent.download import ModelCache, SharedStore, versions_of
from windlass_agent.engines.adapter_disk import AdapterDisk
from windlass_agent.engines.adapters import AdapterSet
from windlass_agent.engines.endpoint import parse_endpoint
from windlass_agent.engines.load import EngineLoad
from windlass_agent.engines.metering import MEASURE_SECONDS, keep_measuring
from windlass_agent.engines.port import (
    EngineCapabilities,
    EngineControl,
    EngineError,
    EngineKind,
)
from windlass_agent.engines.shelf import Shelf
from windlass_agent.engines.weights.following import WeightFollower
from windlass_agent.folders import private_folder
from windlass_agent.keeper.bringing import MESSAGE_LENGTH, bring_weights
from windlass_agent.machine.program_output import one_line

log = telemetry.logger("keeper")
LOOK_SECONDS = 0.3
# Without an answer for so long, the engine's container is to be started anew.
UNANSWERED_SECONDS = 120.0
PROBE_SECONDS = 10.0
# From the weights to the first answer; vLLM compiles long.
START_SECONDS = 1800.0
_CONNECT_SECONDS = 5.0


class EngineKeeper:
    """Brings files to the engine, waits until it answers, and keeps its adapters.

    `endpoint` is where it listens within the pod; adapters take `adapter_bytes` of the disk at
    most. The weights lie on that disk too, or in a `store` that other pods have as well. `changed`
    is set when `state` may differ.
    """

    def __init__(
        self,
        kind: EngineKind,
        *,
        endpoint: str,
        weights: Path,
        adapter_bytes: int,
        store: SharedStore | None = None,
        measure_seconds: float = MEASURE_SECONDS,
    ):
        self._kind = kind
        self._endpoint = endpoint
        self.changed = asyncio.Event()
        # A folder of the pod's own, which the engine's container can read.
        self._models = ModelCache(weights / "models")
        self._store = store
        shelf = Shelf(private_folder(weights / "adapters"), Bare())
        disk = AdapterDisk(self._models, shelf, adapter_bytes)
        self._adapters = AdapterSet(self._models, shelf, self.changed.set, disk=disk)
        followed = private_folder(weights / "followed")
        self._weights = WeightFollower(followed, Bare(), self.changed.set)
        self._measure_seconds = measure_seconds
        # Of an engine that serves and says it.
        self.load: EngineLoad | None = None
        # Empty before the first order.
        self._spec = clusters_pb2.EngineWorkload()
        self._ordered = asyncio.Event()
        self._state = pb.EngineState(phase=clusters_pb2.PHASE_STARTING, reason="Starting")
        # Set once the weights are on disk, so that the engine may start.
        self.has_weights = asyncio.Event()
        # True of an engine that listens and has not answered for too long.
        self.unanswered = False
        self._silenced: Callable[[], None] = lambda: None
        # Set while another pod of the engine has ended.
        self._broken = asyncio.Event()
        # Whether another pod still fetches, so that no time of the start passes.
        self._awaits_weights = False
        self._overdue: asyncio.TimerHandle | None = None

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
            self._weights.told(state.capabilities)
            state.weights_error = self._weights.error
        return state

    def order(self, spec: clusters_pb2.EngineWorkload) -> None:
        """Takes the engine's adapters and weights, and URLs that are good now."""
        self._spec = spec
        self._adapters.want(spec.adapters)
        self._weights.want(spec.followed)
        self._ordered.set()

    def take_others(self, *, broken: bool, awaits_weights: bool) -> None:
        """Takes how the other pods are: the engine answers nothing while one of them is gone."""
        (self._broken.set if broken else self._broken.clear)()
        if self._awaits_weights and not awaits_weights and self._overdue is not None:
            self._time_start()
        self._awaits_weights = awaits_weights

    def when_silent(self, called: Callable[[], None]) -> None:
        """Has `called` called whenever the engine is found to answer no more."""
        self._silenced = called

    async def run(self) -> None:
        """Keeps the engine until cancelled."""
        control = self._kind.control(self._endpoint)
        try:
            async with self._holding():
                while True:
                    await self._serve(control, await self._started(control))
        finally:
            await control.close()

    async def attend(self) -> None:
        """Holds the weights of a pod where nothing answers, until cancelled."""
        async with self._holding():
            # Its agent hears so that they are there.
            self._become(clusters_pb2.PHASE_STARTING, "Loading")
            await asyncio.Event().wait()

    @contextlib.asynccontextmanager
    async def _holding(self) -> AsyncIterator[None]:
        """Keeps the weights, once they are there, for the length of the block."""
        async with self._store.open() if self._store else contextlib.nullcontext():
            await self._ordered.wait()
            with self._models.using(*versions_of(self._spec)):
                await bring_weights(self._store or self._models, lambda: self._spec, self._become)
                self.has_weights.set()
                yield

    async def _started(self, control: EngineControl) -> EngineCapabilities:
        """Returns what the engine can do once it answers, also after its start has failed."""
        if not self.unanswered:
            self._become(clusters_pb2.PHASE_STARTING, "Loading")
        pauses = Backoff(shortest=1.0, longest=30.0)
        self._time_start()
        try:
            while True:
                await self._until_ready(control)
                try:
                    # Before any client's, so that none waits for what the first request costs.
                    await control.warm(self._spec.model, self._spec.arguments.task)
                    return await control.served()
                except EngineError as error:
                    log.warning("engine_not_ready", error=str(error))
                    self._tell_trouble(error)
                await pauses.pause()
        finally:
            self._stop_timing()

    def _tell_trouble(self, error: EngineError) -> None:
        """Says why an engine that is ready gets no request; a start that has failed stays so."""
        if self._state.phase == clusters_pb2.PHASE_STARTING:
            said = one_line(f"It is ready, but fails: {error}", characters=MESSAGE_LENGTH)
            self._become(clusters_pb2.PHASE_STARTING, "NotAnswering", said)

    async def _until_ready(self, control: EngineControl) -> None:
        # Another container's process: nothing announces it.
        while not ((listens := await self._listens()) and await self._is_ready(control)):
            if self.unanswered and not listens:
                # Its container has ended, and another begins.
                self.unanswered = False
                if self._state.phase == clusters_pb2.PHASE_STARTING:
                    self._become(clusters_pb2.PHASE_STARTING, "Loading")
            await asyncio.sleep(LOOK_SECONDS)
        self.unanswered = False

    async def _is_ready(self, control: EngineControl) -> bool:
        # It may say so though another pod of it has ended: the pods of its group end together.
        return not self._broken.is_set() and await control.ready()

    def _time_start(self) -> None:
        self._stop_timing()
        loop = asyncio.get_running_loop()
        self._overdue = loop.call_later(START_SECONDS, self._fail_start)

    def _stop_timing(self) -> None:
        if self._overdue is not None:
            self._overdue.cancel()
            self._overdue = None

    def _fail_start(self) -> None:
        if self._awaits_weights:
            return
        message = f"The engine did not answer within {START_SECONDS / 60:.0f} minutes of its start."
        log.warning("engine_not_started", seconds=START_SECONDS)
        self._become(clusters_pb2.PHASE_FAILED, "StartFailed", message)

    async def _serve(self, control: EngineControl, served: EngineCapabilities) -> None:
        """Keeps its adapters until it is gone or answers no more."""
        self._adapters.want(self._spec.adapters)
        model = (self._store or self._models).path(self._spec.model_version_id)
        served = served.chosen(
            from_message(self._spec.arguments),
            self._spec.nodes,
            vision=await asyncio.to_thread(reads_images, model),
        )
        capabilities = clusters_pb2.EngineCapabilities(**asdict(served))
        # Before the first request, so that none is answered by older weights if they are there.
        await self._weights.take(control, able=served.weight_updates)
        self._state = pb.EngineState(phase=clusters_pb2.PHASE_RUNNING, capabilities=capabilities)
        self.changed.set()
        async with asyncio.TaskGroup() as group:
            silence = group.create_task(self._silence(control))
            measuring = keep_measuring(
                self._spec.model, control, self._note_load, every=self._measure_seconds
            )
            following = self._weights.keep(control, able=served.weight_updates)
            tasks = [silence, group.create_task(measuring), group.create_task(following)]
            if served.adapters:
                tasks.append(group.create_task(self._adapters.keep(control)))
            while await self._listens() and not silence.done():  # noqa: ASYNC110
                await asyncio.sleep(LOOK_SECONDS)
            if silence.done():
                self._give_up()
            for task in tasks:
                task.cancel()
        self._adapters.forget()
        self._weights.forget()
        self.load = None

    def _note_load(self, load: EngineLoad | None) -> None:
        self.load = load
        if load is None:
            self._state.ClearField("load")
        else:
            self._state.load.CopyFrom(pb.EngineLoad(**asdict(load)))
        self.changed.set()

    def _give_up(self) -> None:
        """Takes it out of the routes, and has its container started anew."""
        log.warning("engine_not_answering", seconds=UNANSWERED_SECONDS)
        self.unanswered = True
        message = "The engine does not answer, and is started anew."
        self._become(clusters_pb2.PHASE_STARTING, "NotAnswering", message)
        self._silenced()

    async def _listens(self) -> bool:
        """Returns True if somebody accepts connections where the engine should."""
        address = parse_endpoint(self._endpoint)
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                _, writer = await asyncio.open_connection(address.host, address.port)
        except TimeoutError:
            # So many wait to be accepted that the kernel takes no more of them.
            return True
        except OSError:
            return False
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
        return True

    async def _silence(self, control: EngineControl) -> None:
        """Returns once it has not answered for too long, or will not any more."""
        clock = asyncio.get_running_loop().time
        answered = clock()
        while clock() - answered < UNANSWERED_SECONDS:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(PROBE_SECONDS):
                    await self._broken.wait()
                    return
            if await control.ready():
                answered = clock()

    def _become(
        self, phase: "clusters_pb2.Phase.ValueType", reason: str, message: str = ""
    ) -> None:
        self._state = pb.EngineState(phase=phase, reason=reason, message=message)
        self.changed.set()
