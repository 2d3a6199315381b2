"""Watches of engines' Deployments and pods, put together by engine."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from windlass.kubernetes import labels
from windlass_agent.executors.kubernetes.engine_settings import ENGINE
from windlass_agent.executors.kubernetes.observe.capacity import ClusterCapacity
from windlass_agent.executors.kubernetes.observe.informers import AttemptInformers, Positions
from windlass_agent.executors.kubernetes.observe.snapshot import (
    Key,
    KubeEvent,
    PodSnapshot,
    pod_snapshot,
)
from windlass_agent.kube import Informer, Kube
from windlass_agent.kube.resources import DEPLOYMENTS, PODS
from windlass_agent.kueue.workload import Workload

Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineDeployment:
    """The Deployment of an engine, reduced to the fields that matter."""

    workload: str
    project: str
    namespace: str
    name: str
    uid: str
    generation: int
    # Of what its pod keeps to its end.
    digest: str
    queue: str
    deleting: bool
    # Why its pod is not created; empty if nothing prevents it.
    refusal: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSnapshot:
    """The objects of one engine."""

    deployment: EngineDeployment | None = None
    # The one that serves or will comes first.
    pods: tuple[PodSnapshot, ...] = ()
    # Of the first pod.
    admission: Workload | None = None
    events: tuple[KubeEvent, ...] = ()
    # Whether some node takes nothing now that may do so again.
    short: bool = False
    position: int = 0

    @property
    def pod(self) -> PodSnapshot | None:
        """The pod that serves or will; None while there is none."""
        first = self.pods[0] if self.pods else None
        return first if first is not None and not (first.deleting or first.ended) else None

    @property
    def is_gone(self) -> bool:
        """True if nothing of it is left."""
        return self.deployment is None and not self.pods


class EngineInformers:
    """Informers of engines' objects in every namespace."""

    def __init__(
        self,
        kube: Kube,
        *,
        cluster_id: str,
        attempts: AttemptInformers,
        capacity: ClusterCapacity,
        changed: Callable[[], None],
    ):
        """`attempts` shows Kueue's Workloads and events, of which there is one watch for all."""
        selector = f"{labels.CLUSTER}={cluster_id},{labels.KIND}={labels.ENGINE_KIND}"
        self._attempts = attempts
        self._capacity = capacity
        self._deployments: Informer[EngineDeployment] = Informer(
            kube, DEPLOYMENTS.path(), trim=_deployment, changed=changed, label_selector=selector
        )
        self._pods: Informer[PodSnapshot] = Informer(
            kube, PODS.path(), trim=_pod, changed=changed, label_selector=selector
        )

    async def run(self) -> None:
        """Keeps them up to date until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._deployments.run())
            group.create_task(self._pods.run())

    @property
    def settled(self) -> bool:
        """True if each kind was listed, or is known not to be readable."""
        informers: tuple[Informer[Any], ...] = (self._deployments, self._pods)
        return all(one.synced.is_set() or one.refused for one in informers)

    def pod(self, namespace: str, name: str) -> PodSnapshot | None:
        """Returns a pod of an engine by name."""
        return self._pods.items.get(f"{namespace}/{name}")

    def snapshots(self, positions: Positions) -> dict[str, EngineSnapshot]:
        """The current snapshots by workload."""
        deployments = {one.workload: one for one in self._deployments.items.values()}
        pods: dict[str, list[PodSnapshot]] = defaultdict(list)
        for pod in self._pods.items.values():
            pods[pod.key.workload].append(pod)
        admissions = self._attempts.admissions()
        events = self._attempts.events_of({one.name for some in pods.values() for one in some})
        found = {}
        for workload in deployments.keys() | pods.keys():
            own = sorted(pods.get(workload, ()), key=_standing)
            admission = admissions.get(own[0].uid) if own else None
            place = f"{admission.namespace}/{admission.name}" if admission is not None else ""
            found[workload] = EngineSnapshot(
                deployment=deployments.get(workload),
                pods=tuple(own),
                admission=admission,
                events=tuple(events.get((own[0].namespace, own[0].name), ())) if own else (),
                short=self._capacity.is_short,
                position=positions.get(place, 0),
            )
        return found


def _standing(pod: PodSnapshot) -> tuple[bool, bool, str]:
    return pod.deleting, pod.ended, pod.name


def _deployment(item: Object) -> EngineDeployment | None:
    metadata = item["metadata"]
    marks, notes = metadata.get("labels") or {}, metadata.get("annotations") or {}
    workload, generation = marks.get(labels.WORKLOAD, ""), notes.get(labels.GENERATION, "")
    if not workload:
        return None
    conditions = (item.get("status") or {}).get("conditions") or ()
    refusals = (
        one.get("message") or ""
        for one in conditions
        if one["type"] == "ReplicaFailure" and one["status"] == "True"
    )
    return EngineDeployment(
        workload=workload,
        project=marks.get(labels.PROJECT, ""),
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        generation=int(generation) if generation.isdecimal() else 0,
        digest=notes.get(labels.ENGINE_SPEC, ""),
        queue=marks.get(labels.QUEUE, ""),
        deleting="deletionTimestamp" in metadata,
        refusal=next(refusals, ""),
    )


def _pod(item: Object) -> PodSnapshot | None:
    workload = (item["metadata"].get("labels") or {}).get(labels.WORKLOAD, "")
    return pod_snapshot(item, Key(workload, 0), ENGINE) if workload else None
