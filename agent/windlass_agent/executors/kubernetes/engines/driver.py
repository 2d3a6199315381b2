"""Engines on Kubernetes: reconciles what should serve with what the cluster shows.

As with jobs, the cluster's own objects are the record of what runs.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine
from typing import Any

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.api.keeper.v1 import keeper_pb2
from windlass.bounds import MAX_MODEL_VERSIONS
from windlass.core import telemetry
from windlass.core.ids import is_identifier
from windlass_agent.download import BroughtVersions
from windlass_agent.engines.load import EngineLoad
from windlass_agent.executors.gpu_meter import GpuMeter
from windlass_agent.executors.kubernetes.engines.diagnosis import awaits_weights, said
from windlass_agent.executors.kubernetes.engines.holders import held, holder_of
from windlass_agent.executors.kubernetes.engines.keepers import Keepers
from windlass_agent.executors.kubernetes.engines.launching import EngineLauncher
from windlass_agent.executors.kubernetes.engines.memory_lack import MemoryLack
from windlass_agent.executors.kubernetes.engines.observed import (
    EngineInformers,
    EngineRoot,
    EngineSnapshot,
)
from windlass_agent.executors.kubernetes.engines.prometheus import PodKey
from windlass_agent.executors.kubernetes.engines.replicas import ServingReplica, alike
from windlass_agent.executors.kubernetes.engines.residents import Residents
from windlass_agent.executors.kubernetes.engines.tracked import Due, TrackedEngine
from windlass_agent.executors.kubernetes.observe.informers import Positions
from windlass_agent.executors.kubernetes.observe.snapshot import PodSnapshot
from windlass_agent.executors.kubernetes.render.engine_pod import DOOR_PORT
from windlass_agent.executors.kubernetes.render.parts import ClaimHolder
from windlass_agent.executors.kubernetes.render.weights import order_of
from windlass_agent.executors.kubernetes.settings import Patience
from windlass_agent.kube import KubeError
from windlass_agent.kueue import Workload
from windlass_agent.retrying import run_forever

# So that a burst of changes is looked at once.
COALESCE_SECONDS = 0.02
# A look takes in everything; looking takes at most one part in so many of the time.
LOOK_SHARE = 5
# Also when nothing changed: a patience may have ended.
LOOK_SECONDS = 1.0
_NOTHING = EngineSnapshot()

log = telemetry.logger("engines")


class EnginePodDriver:
    """The driver of engines. `looked` is set by the informers and by keepers."""

    def __init__(
        self,
        *,
        cluster_id: str,
        launcher: EngineLauncher,
        memory: MemoryLack,
        informers: EngineInformers,
        keepers: Keepers,
        residents: Residents,
        positions: Callable[[], Positions],
        patience: Patience,
        gpus: GpuMeter[PodKey] | None,
        looked: asyncio.Event,
        changed: Callable[[], None],
    ):
        self._cluster_id = cluster_id
        self._launcher = launcher
        self._memory = memory
        self._informers = informers
        self._keepers = keepers
        self._residents = residents
        self._positions = positions
        self._patience = patience
        self._gpus = gpus
        self._looked = looked
        self._changed = changed
        self._engines: dict[str, TrackedEngine] = {}
        self._brought = BroughtVersions(MAX_MODEL_VERSIONS)
        self._tasks: set[asyncio.Task[None]] = set()

    def loads(self) -> dict[str, EngineLoad]:
        """Returns the load of each engine that serves, by its workload's id."""
        return {
            name: engine.load
            for name, engine in self._engines.items()
            if engine.serves and engine.load is not None
        }

    async def apply(self, workload: pb.Workload) -> None:
        """Accepts the desired state of an engine; raises ValueError for an invalid id."""
        if not is_identifier(workload.id):
            raise ValueError(f"{workload.id!r} is not an identifier")
        engine = self._engines.get(workload.id)
        if engine is None:
            if workload.desired == pb.DESIRED_STATE_DELETED:
                return
            engine = self._engines[workload.id] = TrackedEngine(workload)
        engine.want(workload)
        self._keepers.order()
        self._looked.set()
        self._changed()

    def knows(self, workload_id: str) -> bool:
        """Returns True if the driver was given this engine or found it in the cluster."""
        return workload_id in self._engines

    def statuses(self) -> list[pb.WorkloadStatus]:
        """The status of every engine."""
        return [engine.status() for engine in self._engines.values()]

    async def adopt(self) -> None:
        """Starts the informers and takes over the engines that they show."""
        self._spawn(run_forever("following_engines", self._informers.run))
        if self._gpus is not None:
            self._spawn(run_forever("measuring_gpus", self._gpus.run))
        while not self._informers.settled:
            await self._looked.wait()
            self._looked.clear()
        self._look()
        self._spawn(run_forever("looking_at_engines", self._keep_looking))
        log.info("engines_adopted", engines=len(self._engines))

    async def close(self) -> None:
        """Stops the driver; engines go on for the next agent process."""
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def used(self) -> int:
        """Engines that have objects in the cluster, or should."""
        return sum(not engine.is_gone for engine in self._engines.values())

    @property
    def brought(self) -> list[str]:
        """Versions that pods with one node have or had the files of, those used last first."""
        return self._brought.latest()

    def ordered(self, workload_id: str) -> pb.EngineWorkload | None:
        """The order for the keeper of an engine; None before this agent was told of it."""
        engine = self._engines.get(workload_id)
        is_wanted = engine is not None and engine.told and engine.is_wanted
        return order_of(engine.workload) if engine is not None and is_wanted else None

    def broken(self, workload_id: str) -> bool:
        """Returns True if a pod of an engine on several nodes is gone."""
        engine = self._engines.get(workload_id)
        return engine is not None and engine.broken

    def awaits_weights(self, workload_id: str) -> bool:
        """Returns True if a pod other than the first of an engine still fetches its weights."""
        engine = self._engines.get(workload_id)
        return engine is not None and engine.awaits_weights

    @property
    def has_groups(self) -> bool:
        """True if the cluster can run an engine on several nodes."""
        return self._informers.has_groups

    def address(self, workload_id: str) -> str:
        """The address of the pod that serves as an engine; empty if none does."""
        engine = self._engines.get(workload_id)
        pod = engine.snapshot.pod if engine is not None and engine.serves else None
        return pod.address if pod is not None else ""

    def door_port(self, workload_id: str) -> int:
        """The port of the door of an engine that serves."""
        engine = self._engines.get(workload_id)
        root = engine.snapshot.root if engine is not None else None
        if root is None or not root.is_resident:
            return DOOR_PORT
        return DOOR_PORT + self._residents.slot(root)

    def is_host(self, pod: PodSnapshot) -> bool:
        """Returns True of a pod that is to host residents."""
        return self._residents.hosted_by(pod) is not None

    def sits(self, pod: PodSnapshot, workload_id: str) -> bool:
        """Returns True if an engine is a resident of a pod, which may speak for it then."""
        return self._residents.sits(pod, self._engines.get(workload_id))

    def alike(self, workload_id: str) -> list[ServingReplica]:
        """An engine that serves, then those that may answer for it; empty if it does not serve."""
        engine = self._engines.get(workload_id)
        return alike(engine, self._engines.values()) if engine is not None else []

    def waiting(self) -> list[Workload]:
        """Engines that wait in a queue, with their Workloads."""
        admissions = (engine.snapshot.admission for engine in self._engines.values())
        return [one for one in admissions if one is not None and one.waiting is not None]

    async def _keep_looking(self) -> None:
        took = 0.0
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._looked.wait()
                await asyncio.sleep(max(COALESCE_SECONDS, LOOK_SHARE * took))
            self._looked.clear()
            began = time.monotonic()
            self._look()
            took = time.monotonic() - began

    def _look(self) -> None:
        """Compares what the cluster shows and keepers say with what should be."""
        snapshots = self._informers.snapshots(self._positions())
        self._residents.show(self._engines, snapshots)
        for workload_id, snapshot in snapshots.items():
            if workload_id not in self._engines and (root := snapshot.root):
                self._engines[workload_id] = self._found(root)
        clock = time.monotonic()
        for workload_id, engine in list(self._engines.items()):
            before, ordered = engine.status(), (engine.broken, engine.awaits_weights)
            snapshot = snapshots.get(workload_id, _NOTHING)
            gpu, states = self._gpu_use(snapshot), self._states(snapshot)
            engine.see(snapshot, said(states), clock=clock, patience=self._patience, gpu=gpu)
            for pod in engine.unread_ends():
                self._spawn(self._read_end(engine, pod))
            engine.awaits_weights = awaits_weights(states)
            if engine.has_weights and (version := order_of(engine.workload).model_version_id):
                self._brought.note(version)
            if (engine.broken, engine.awaits_weights) != ordered:
                self._keepers.order()
            if engine.is_gone:
                del self._engines[workload_id]
                self._changed()
                continue
            if engine.status() != before:
                self._changed()
            if not engine.working and engine.due(clock) is not Due.NOTHING:
                engine.working = True
                self._spawn(self._bring_about(engine))

    async def _read_end(self, engine: TrackedEngine, pod: PodSnapshot) -> None:
        """Asks the log of an end whether the engine lacked memory."""
        digest, found = engine.digest, await self._memory.advice(engine.workload.engine, pod)
        if found and engine.digest == digest:
            engine.lack = found
            self._looked.set()

    def _gpu_use(self, snapshot: EngineSnapshot) -> float | None:
        if snapshot.pod is None or self._gpus is None:
            return None
        return self._gpus.use([(pod.namespace, pod.name) for pod in snapshot.live])

    def _states(self, snapshot: EngineSnapshot) -> list[keeper_pb2.EngineState | None]:
        """The words of the keepers of pods, the first pod's first; None of each without one."""
        if snapshot.pod is None or snapshot.root is None:
            return [None]
        if snapshot.root.is_lease:
            return [held(snapshot)]
        if snapshot.root.is_resident and (ended := self._residents.end_of(snapshot.root)):
            return [ended]
        states = [self._keepers.state(pod.uid) for pod in snapshot.live]
        if snapshot.is_grouped:
            return states + [None] * (snapshot.root.nodes - len(states))
        return states[:1]

    def _holder(self, workload: pb.Workload) -> ClaimHolder | None:
        """The pod whose claim a workload joins; None where it joins none, or that does not run."""
        lease = self._engines.get(workload.engine.trainer.lease_id)
        return holder_of(workload, lease.snapshot) if lease is not None else None

    def _found(self, root: EngineRoot) -> TrackedEngine:
        """An engine that an earlier life of the agent made, until somebody tells of it."""
        workload = pb.Workload(
            id=root.workload,
            cluster_id=self._cluster_id,
            project_id=root.project,
            generation=root.generation,
            desired=pb.DESIRED_STATE_RUNNING,
        )
        return TrackedEngine(workload)

    async def _bring_about(self, engine: TrackedEngine) -> None:
        """Takes the steps that are due, until none is."""
        try:
            while (due := engine.due(time.monotonic())) is not Due.NOTHING:
                engine.nudged.clear()
                try:
                    done = await self._step(engine, due)
                except KubeError as error:
                    identifier = engine.workload.id
                    log.warning("engine_step_failed", engine=identifier, message=error.message)
                    done = False
                if done:
                    engine.backoff.reset()
                    return
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(engine.backoff.next()):
                        await engine.nudged.wait()
        finally:
            engine.working = False
            self._changed()

    async def _step(self, engine: TrackedEngine, due: Due) -> bool:
        """Returns False if it is to be tried again."""
        if due is Due.DELETE:
            await self._launcher.delete(engine.workload, engine.snapshot.root)
            engine.made_at, engine.may_exist = 0.0, False
            if engine.snapshot.root is not None:
                engine.deleted_at = time.monotonic()
            return True
        # Whatever becomes of the call.
        engine.may_exist = True
        found = await self._launcher.apply(engine.workload, self._holder(engine.workload))
        if found is None:
            engine.made_at = time.monotonic()
            return True
        engine.find(found, clock=time.monotonic(), patience=self._patience)
        self._changed()
        return engine.failure is not None

    def pod(self, namespace: str, name: str) -> PodSnapshot | None:
        """Returns a pod of an engine by name."""
        return self._informers.pod(namespace, name)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            log.error("engine_task_failed", exc_info=error)
