"""The way of one engine to its first answer: its place, its model, its process."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from pathlib import Path

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.api.models.v1 import models_pb2
from windlass.engine_arguments import from_message
from windlass_agent.download import versions_of
from windlass_agent.engines.port import (
    CapabilityMissing,
    EngineControl,
    EngineKind,
    EngineSpec,
    TrainingAccess,
)
from windlass_agent.executors.process.engines import placing, readiness
from windlass_agent.executors.process.engines.engine_failure import EngineFailure
from windlass_agent.executors.process.engines.engine_house import EngineHouse
from windlass_agent.executors.process.engines.engine_process import EngineProcess
from windlass_agent.executors.process.engines.engine_state import EngineState
from windlass_agent.machine.program_output import one_line

RUNNING_POLL_SECONDS = 0.2
MESSAGE_LENGTH = 2000


class EngineStart:
    """Brings processes of an engine up, one after the other."""

    def __init__(self, state: EngineState, house: EngineHouse):
        self._state = state
        self._house = house
        self._files = house.files(state.workload.id)

    def kind(self) -> EngineKind:
        """The kind of the engine; raises EngineFailure for one that is not installed here."""
        spec = self._state.spec
        if (kind := self._house.engines.get(spec.engine)) is None or spec.nodes > 1:
            said = f"The engine {spec.engine!r} is not installed on this machine."
            several = "This machine runs no engine together with others."
            raise EngineFailure("NotInstalled", several if spec.nodes > 1 else said)
        try:
            return kind.trained() if spec.training else kind
        except CapabilityMissing as error:
            raise EngineFailure("TrainingUnavailable", f"{error}.") from error

    async def get_place(self) -> None:
        """Waits for its share of the machine; raises EngineFailure where there is no such share."""
        state = self._state

        def waits() -> None:
            state.become(pb.PHASE_PENDING, "WaitingForSlot", "Waiting for a slot")

        state.allotment = await placing.get_place(state.workload, self.kind(), self._house, waits)

    async def bring_up(
        self, engine: EngineKind, control: EngineControl
    ) -> tuple[EngineProcess, bool]:
        """Starts the process in its turn, unless it runs; returns it, and False if it ended."""
        state = self._state
        if state.process is not None:
            return state.process, await self._wait(state.process, control.ready)
        await self._regain_gpus()
        state.become(pb.PHASE_STARTING, "Downloading", "")
        folders = [await self._fetch(one) for one in versions_of(state.spec)]
        async with self._house.starts.turn(self._wait_turn):
            state.become(pb.PHASE_STARTING, "Loading", "")
            state.process = self._begin(engine, *folders)
            return state.process, await self._wait(
                state.process,
                partial(readiness.warmed, control, state.spec, self._note_failing),
            )

    async def _regain_gpus(self) -> None:
        """Waits until an engine that ended in its sleep is needed, and has its GPUs again."""
        state, places, identifier = self._state, self._house.places, self._state.workload.id
        if places.lends(identifier) and state.spec.asleep:
            state.become(pb.PHASE_SLEEPING)
            while state.spec.asleep:  # noqa: ASYNC110
                await asyncio.sleep(RUNNING_POLL_SECONDS)
        state.become(pb.PHASE_STARTING)
        await places.take_back(identifier)

    def _note_failing(self, message: str) -> None:
        said = one_line(message, characters=MESSAGE_LENGTH)
        self._state.become(pb.PHASE_STARTING, "NotAnswering", said)

    async def _fetch(self, version_id: str) -> Path:
        def files() -> Iterable[models_pb2.FileUrl]:
            return versions_of(self._state.spec)[version_id]

        return await self._house.models.fetch(version_id, files(), renewed=files)

    def _wait_turn(self) -> None:
        waiting = "Waiting until other engines of the machine have started"
        self._state.become(pb.PHASE_STARTING, "WaitingToStart", waiting)

    def _begin(self, engine: EngineKind, model: Path, draft: Path | None = None) -> EngineProcess:
        state, spec = self._state, self._state.spec
        return EngineProcess.start(
            engine,
            EngineSpec(
                model_dir=model,
                draft_dir=draft,
                served_name=spec.model,
                endpoint=f"unix://{self._files.socket}",
                max_adapters=max(1, spec.max_adapters),
                arguments=from_message(spec.arguments),
                cpus=state.allotment.cpus,
                gpus=len(state.allotment.devices),
                sleeps=spec.sleeps,
                scratch=self._files.socket.parent,
                training=self._new_access(),
            ),
            files=self._files,
            workload=state.workload.SerializeToString(),
            allotment=state.allotment,
            confinement=self._house.confinement,
        )

    def _new_access(self) -> TrainingAccess | None:
        if not self._state.spec.training:
            return None
        return TrainingAccess(key=secrets.token_hex(32), checkpoints=self._files.checkpoints)

    async def _wait(self, process: EngineProcess, answers: Callable[[], Awaitable[bool]]) -> bool:
        """Waits until it answers; returns False if it ended first, raises EngineFailure if late."""
        try:
            return await readiness.until_answering(process, self._files.socket, answers)
        except TimeoutError as error:
            words = f"{error} {self._state.message}".strip()
            raise EngineFailure("StartFailed", words) from error
