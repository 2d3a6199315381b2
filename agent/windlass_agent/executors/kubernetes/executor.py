"""The Kubernetes executor: one driver per kind of workload, and the service for runners in pods."""

from collections.abc import Callable, Mapping
from typing import Protocol

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.core import telemetry
from windlass.engine_arguments import GROUPED
from windlass_agent.engines.load import EngineLoad
from windlass_agent.executors.kubernetes.driver import KubernetesJobDriver
from windlass_agent.executors.kubernetes.engines.doors import Doors
from windlass_agent.executors.kubernetes.engines.driver import EnginePodDriver
from windlass_agent.executors.kubernetes.engines.replicas import ServingReplica
from windlass_agent.executors.kubernetes.observe.capacity import ClusterCapacity
from windlass_agent.executors.kubernetes.runners import RunnerListener
from windlass_agent.executors.port import WorkloadDriver, kind_of

# In pods of the same make, of which a lease has no keeper.
_BY_ENGINES = {"prefetch": "engine", "lease": "engine"}

log = telemetry.logger("executor")


class OtherDriver(WorkloadDriver, Protocol):
    """A driver of workloads other than jobs."""

    def knows(self, workload_id: str) -> bool:
        """Returns True if the driver was given this workload or found it in the cluster."""


class KubernetesExecutor:
    """An Executor of one cluster. `others` are drivers by the kind of `Workload.spec`.

    `doors` is the way to the pods of its `engines`.
    """

    def __init__(
        self,
        jobs: KubernetesJobDriver,
        runners: RunnerListener,
        capacity: ClusterCapacity,
        *,
        changed: Callable[[], None],
        engines: EnginePodDriver,
        doors: Doors,
        others: Mapping[str, OtherDriver],
    ):
        self._jobs = jobs
        self._runners = runners
        self._capacity = capacity
        self._changed = changed
        self._engines = engines
        self._others = others
        self.doors = doors
        self._refused: dict[str, pb.WorkloadStatus] = {}

    async def apply(self, workload: pb.Workload) -> None:
        """Passes a workload to its driver; refuses kinds without a driver."""
        self._refused.pop(workload.id, None)
        kind = _BY_ENGINES.get(kind := kind_of(workload), kind) or None
        if driver := self._driver(workload, kind):
            await driver.apply(workload)
            return
        log.warning("workload_refused", workload=workload.id, kind=kind)
        self._refused[workload.id] = pb.WorkloadStatus(
            workload_id=workload.id,
            generation=workload.generation,
            phase=pb.PHASE_FAILED,
            reason="Unsupported",
            message=f"This cluster's agent runs no workload of kind {kind} yet.",
        )
        self._changed()

    def _driver(self, workload: pb.Workload, kind: str | None) -> WorkloadDriver | None:
        if kind is None:
            # Of one that is to end, little may be known.
            known = (one for one in self._others.values() if one.knows(workload.id))
            return next(known, self._jobs)
        if kind in self._others:
            return self._others[kind]
        if kind == "job" or workload.desired == pb.DESIRED_STATE_DELETED:
            return self._jobs
        return None

    def statuses(self) -> list[pb.WorkloadStatus]:
        """The status of every known workload."""
        others = [status for one in self._others.values() for status in one.statuses()]
        return [*self._refused.values(), *self._jobs.statuses(), *others]

    async def adopt(self) -> None:
        """Takes over what the cluster shows, then listens to its runners."""
        for driver in (self._jobs, *self._others.values()):
            await driver.adopt()
        await self._runners.start()

    async def close(self) -> None:
        """Stops the executor; workloads keep running for the next agent process."""
        await self._runners.stop()
        for driver in (self._jobs, *self._others.values()):
            await driver.close()

    def endpoint(self, workload_id: str) -> str:
        """The socket where a workload answers that is no pod; empty for any other."""
        found = (one for one in self._others["stack"].statuses() if one.workload_id == workload_id)
        return next((one.endpoint for one in found), "")

    def alike(self, workload_id: str) -> list[ServingReplica]:
        """A replica that serves in a pod, then those that may answer for it."""
        return self._engines.alike(workload_id)

    async def engine_loads(self) -> Mapping[str, EngineLoad]:
        """Returns the load of engines that serve, by their workloads' ids, as their keepers say."""
        return self._engines.loads()

    def capacity(self) -> pb.Capacity:
        """The capacity of the cluster."""
        capacity = self._capacity.capacity(self._jobs.used, engines=self._engines.used)
        if self._engines.has_groups and GROUPED in capacity.engines:
            capacity.grouped_engines.append(GROUPED)
        if capacity.keeps_models:
            capacity.model_versions.extend(self._engines.brought)
        return capacity
