"""The service of one engine while its process answers: adapters, weights, load, sleep."""

import asyncio
from dataclasses import asdict

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.core import telemetry
from windlass.engine_arguments import from_message
from windlass.modelfiles.vision import reads_images
from windlass_agent.download import bytes_of
from windlass_agent.engines.adapters import AdapterSet
from windlass_agent.engines.load import EngineLoad
from windlass_agent.engines.metering import EngineMeter
from windlass_agent.engines.port import EngineControl, EngineError
from windlass_agent.engines.shelf import Shelf
from windlass_agent.engines.weights.following import WeightFollower
from windlass_agent.executors.process.engines import readiness
from windlass_agent.executors.process.engines.engine_house import EngineHouse
from windlass_agent.executors.process.engines.engine_process import EngineProcess
from windlass_agent.executors.process.engines.engine_start import RUNNING_POLL_SECONDS
from windlass_agent.executors.process.engines.engine_state import EngineState
from windlass_agent.executors.process.engines.sleeping import EngineSleep

log = telemetry.logger("engines")


class ServedEngineRun:
    """An engine that answers: what it has, and what it is told.

    `endpoint` is empty while it does not answer.
    """

    def __init__(self, state: EngineState, house: EngineHouse):
        files = house.files(state.workload.id)
        self.endpoint = ""
        self._address = f"unix://{files.socket}"
        self._state = state
        self._house = house
        self._control: EngineControl | None = None
        self._capabilities = pb.EngineCapabilities()
        self._meter = EngineMeter(house.changed, lambda: house.gpus.use(state.allotment.devices))
        shelf = Shelf(files.adapters, house.confinement)
        self._adapters = AdapterSet(house.models, shelf, house.changed)
        self._weights = WeightFollower(
            files.weights,
            house.confinement,
            house.changed,
            media=house.weights,
            local=house.local_objects,
        )

    def want(self) -> None:
        """Takes the adapters and the weights that are wanted now."""
        self._adapters.want(self._state.spec.adapters)
        self._weights.want(self._state.spec.followed)

    def add_to(self, status: pb.WorkloadStatus) -> None:
        """Says in a status what the engine serves."""
        self._weights.told(self._capabilities)
        status.adapters.extend(self._adapters.statuses())
        status.capabilities.CopyFrom(self._capabilities)
        if (load := self._meter.load()) is not None:
            status.load.CopyFrom(load)
        status.weights_error = self._weights.error

    async def load(self) -> EngineLoad | None:
        """Returns its load; None where it does not serve, or does not say."""
        if self._control is None:
            return None
        try:
            return await self._control.load()
        except EngineError as error:
            log.info("engine_load_unknown", engine=self._state.workload.id, error=str(error))
            return None

    async def serve(self, process: EngineProcess, control: EngineControl) -> None:
        """Answers, and sleeps when asked to, until the process ends or does not answer."""
        state, spec = self._state, self._state.spec
        await self._learn_capabilities(control)
        if spec.sleeps and not state.is_told:
            spec.asleep = await control.asleep()
        sleep = EngineSleep(
            workload_id=state.workload.id,
            control=control,
            process=process,
            places=self._house.places,
            weight_bytes=bytes_of(spec),
            wanted=lambda: state.spec.asleep,
            become=state.become,
            recheck=lambda: self._recheck(control),
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
        state.become(pb.PHASE_STARTING, "Restarting", words)

    def stop(self) -> None:
        """Says that it does not answer."""
        self.endpoint, self._control = "", None

    async def _learn_capabilities(self, control: EngineControl) -> None:
        spec, served = self._state.spec, await control.served()
        model = self._house.models.path(spec.model_version_id)
        vision = await asyncio.to_thread(reads_images, model)
        served = served.chosen(
            from_message(spec.arguments),
            sleeps=spec.sleeps,
            vision=vision,
            training=bool(spec.training),
        )
        self._capabilities = pb.EngineCapabilities(**asdict(served))

    async def _recheck(self, control: EngineControl) -> None:
        """Has an engine that woke up answer once, with its adapters."""
        spec = self._state.spec
        await control.warm(spec.model, spec.arguments.task)
        if self._capabilities.adapters:
            await self._adapters.resync(control)

    async def _answer(self, process: EngineProcess, control: EngineControl) -> bool:
        """Answers until it should sleep; returns False once the engine does not."""
        state, able = self._state, self._capabilities.weight_updates
        if state.is_told:
            self.want()
        # Before the first request, so that none is answered by older weights if they are there.
        await self._weights.take(control, able=able)
        self.endpoint, self._control = self._address, control
        state.become(pb.PHASE_RUNNING)
        async with asyncio.TaskGroup() as group:
            keeping = [group.create_task(self._meter.keep(state.workload.id, control))]
            keeping.append(group.create_task(self._weights.keep(control, able=able)))
            if self._capabilities.adapters:
                keeping.append(group.create_task(self._adapters.keep(control)))
            probing = group.create_task(readiness.until_silent(process, control))
            while self._should_answer(process) and not probing.done():  # noqa: ASYNC110
                await asyncio.sleep(RUNNING_POLL_SECONDS)
            answers = not probing.done()
            for task in (*keeping, probing):
                task.cancel()
        self.stop()
        return answers

    def _should_answer(self, process: EngineProcess) -> bool:
        return not (process.ended() or self._state.spec.asleep)
