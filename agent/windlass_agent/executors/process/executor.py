"""The process executor: one driver per kind of workload, and the slots that bound them."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.core import telemetry
from windlass_agent.engines.load import EngineLoad
from windlass_agent.executors.port import WorkloadDriver, kind_of
from windlass_agent.executors.process.allocator import ENGINE, JOB, Allocator, SlotPool
from windlass_agent.runner_service import RunnerServer

# What runs to completion, of which no more is known than that.
_SPECS = {pb.WORKLOAD_KIND_RUN_TO_COMPLETION: "job"}

# More would make a heartbeat too long; all of them count.
MAX_DEVICES = 64

log = telemetry.logger("executor")


class ProcessExecutor:
    """An Executor of this machine. `drivers` are by the name of a workload's `spec` field.

    `kinds` are those of engines that can run here, `sleeping` those that can sleep and `training`
    those that can be trained in their own memory, `backends` those whose jobs can run, `libraries`
    what some of their settings need. `versions` are those of models whose files are here. `direct`
    leads to engines beside the tunnel. What fits on devices is not known without `tells_memory`.
    """

    def __init__(
        self,
        *,
        drivers: Mapping[str, WorkloadDriver],
        loads: Callable[[], Awaitable[Mapping[str, EngineLoad]]],
        allocator: Allocator,
        jobs: SlotPool,
        engines: SlotPool,
        runners: RunnerServer,
        kinds: Sequence[str],
        sleeping: Sequence[str],
        training: Sequence[str] = (),
        backends: Sequence[str],
        libraries: Sequence[str] = (),
        versions: Callable[[], Sequence[str]],
        changed: Callable[[], None],
        direct: pb.DirectEndpoint | None = None,
        tells_memory: bool = True,
    ):
        self._direct = direct
        self._tells_memory = tells_memory
        self._kinds = kinds
        self._sleeping = sleeping
        self._training = training
        self._backends = backends
        self._libraries = libraries
        self._versions = versions
        self._drivers = drivers
        self._loads = loads
        self._allocator = allocator
        self._jobs = jobs
        self._engines = engines
        self._runners = runners
        self._changed = changed
        self._refused: dict[str, pb.WorkloadStatus] = {}

    async def apply(self, workload: pb.Workload) -> None:
        """Passes a workload to the driver of its kind; one without a spec to every driver."""
        self._refused.pop(workload.id, None)
        kind = kind_of(workload) or _SPECS.get(workload.kind, "empty workload")
        if workload.desired == pb.DESIRED_STATE_DELETED:
            for driver in self._drivers.values():
                await driver.apply(workload)
        elif chosen := self._drivers.get(kind):
            try:
                await chosen.apply(workload)
            except ValueError as error:
                self._refuse(workload, "InvalidWorkload", str(error))
        else:
            self._refuse(workload, "Unsupported", f"This executor runs no {kind}.")

    def _refuse(self, workload: pb.Workload, reason: str, message: str) -> None:
        log.error("workload_refused", workload=workload.id, reason=reason, message=message)
        self._refused[workload.id] = pb.WorkloadStatus(
            workload_id=workload.id,
            generation=workload.generation,
            phase=pb.PHASE_FAILED,
            reason=reason,
            message=message,
        )
        self._changed()

    def statuses(self) -> list[pb.WorkloadStatus]:
        """The status of every known workload."""
        statuses = list(self._refused.values())
        for driver in self._drivers.values():
            statuses += driver.statuses()
        return statuses

    async def adopt(self) -> None:
        """Takes over running workloads, then starts serving their runners."""
        for driver in self._drivers.values():
            await driver.adopt()
        await self._runners.start()

    async def close(self) -> None:
        """Stops the drivers, then the service for runners."""
        await asyncio.gather(*(driver.close() for driver in self._drivers.values()))
        await self._runners.stop()

    async def engine_loads(self) -> Mapping[str, EngineLoad]:
        """Returns the load of engines that serve, by their workloads' ids."""
        return await self._loads()

    def capacity(self) -> pb.Capacity:
        """The capacity of this machine."""
        allocator, machine = self._allocator, self._allocator.machine
        held = allocator.held(JOB, ENGINE)
        return pb.Capacity(
            slots=self._jobs.size,
            used_slots=self._jobs.used,
            engine_slots=self._engines.size,
            used_engine_slots=self._engines.used,
            gpus=len(machine.devices),
            used_gpus=held.gpus,
            cpus=machine.cpus,
            used_cpus=held.cpus,
            memory_bytes=machine.memory_bytes,
            used_memory_bytes=held.memory_bytes,
            held_by_engines=allocator.held(ENGINE),
            devices=[
                pb.Device(
                    id=one.id,
                    product=one.product,
                    memory_bytes=one.memory_bytes if self._tells_memory else 0,
                    used=allocator.used(one),
                )
                for one in machine.devices[:MAX_DEVICES]
            ],
            engines=self._kinds,
            sleeping_engines=self._sleeping,
            training_engines=self._training,
            backends=self._backends,
            libraries=self._libraries,
            keeps_models="prefetch" in self._drivers,
            direct=self._direct,
            model_versions=self._versions(),
        )
