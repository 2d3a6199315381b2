"""Watches of engines' pods and of what has these, put together by engine."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from windlass.kubernetes import labels
from windlass_agent.executors.kubernetes.engine_settings import ENGINE, SERVER
from windlass_agent.executors.kubernetes.observe.capacity import ClusterCapacity
from windlass_agent.executors.kubernetes.observe.informers import AttemptInformers, Positions
from windlass_agent.executors.kubernetes.observe.snapshot import (
    Key,
    KubeEvent,
    PodSnapshot,
    pod_snapshot,
)
from windlass_agent.kube import Informer, Kube
from windlass_agent.kube.resources import DEPLOYMENTS, LEADERWORKERSETS, PODS, Resource
from windlass_agent.kueue.workload import Workload

# Clocks of API servers differ by less.
SKEW_SECONDS = 5.0
Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineRoot:
    """The Deployment of an engine or its LeaderWorkerSet, reduced to the fields that matter.

    What stands for a resident of another's pod has no object.
    """

    resource: Resource
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
    # Its pods.
    nodes: int = 1
    # Whether it holds devices for others, and has no keeper.
    is_lease: bool = False
    # Whether those are processes of its pod.
    hosts: bool = False
    # Whether it is such a process: its uid is that of the pod.
    is_resident: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSnapshot:
    """The objects of one engine."""

    root: EngineRoot | None = None
    # The one that serves or will comes first.
    pods: tuple[PodSnapshot, ...] = ()
    # Of the first pod, or of all of several.
    admission: Workload | None = None
    events: tuple[KubeEvent, ...] = ()
    # Whether some node takes nothing now that may do so again.
    short: bool = False
    # Unreachable nodes of its pods.
    lost: frozenset[str] = frozenset()
    position: int = 0

    @property
    def pod(self) -> PodSnapshot | None:
        """The pod that serves or will; None while there is none."""
        first = self.live[0] if self.live else None
        return first if first is not None and first.rank == 0 else None

    @property
    def is_grouped(self) -> bool:
        """True of an engine on several nodes."""
        return self.root is not None and self.root.nodes > 1

    @property
    def leader(self) -> PodSnapshot | None:
        """The first pod, which may be ending; None while there is none."""
        return next((pod for pod in self.pods if pod.rank == 0), None)

    @property
    def members(self) -> list[PodSnapshot]:
        """The pods but those of a group that the first pod does not belong to."""
        if not self.is_grouped or (leader := self.leader) is None:
            return list(self.pods)
        # A first pod that goes alone is replaced while the others of its group still end.
        return [pod for pod in self.pods if pod.created >= leader.created - SKEW_SECONDS]

    @property
    def live(self) -> list[PodSnapshot]:
        """The pods that should go on."""
        return [pod for pod in self.members if not (pod.deleting or pod.ended)]

    @property
    def is_whole(self) -> bool:
        """True if the engine runs in a pod on each of its nodes."""
        runs = [one for one in self.live if one.runner and one.runner.state == "running"]
        return self.root is not None and len(runs) >= self.root.nodes

    @property
    def broken(self) -> PodSnapshot | None:
        """A pod of several whose engine has ended, and with it that of all; None without one."""
        leader = self.leader
        if not self.is_grouped or leader is None:
            return None
        # One that leaves before the first pod may be of a former group.
        counted = (pod for pod in self.members if leader.deleting or not pod.deleting)
        return next((pod for pod in counted if pod.restarts or _has_ended(pod)), None)

    @property
    def is_gone(self) -> bool:
        """True if nothing of it is left."""
        return self.root is None and not self.pods


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
        self._deployments, self._groups = (
            Informer(
                kube,
                resource.path(),
                trim=partial(trim, resource),
                changed=changed,
                label_selector=selector,
            )
            for resource, trim in ((DEPLOYMENTS, trim_deployment), (LEADERWORKERSETS, trim_group))
        )
        self._pods: Informer[PodSnapshot] = Informer(
            kube, PODS.path(), trim=trim_pod, changed=changed, label_selector=selector
        )

    async def run(self) -> None:
        """Keeps them up to date until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._deployments.run())
            group.create_task(self._groups.run())
            group.create_task(self._pods.run())

    @property
    def settled(self) -> bool:
        """True if each kind was listed, or is known not to be readable."""
        informers: tuple[Informer[Any], ...] = (self._deployments, self._groups, self._pods)
        return all(one.synced.is_set() or one.refused for one in informers)

    @property
    def has_groups(self) -> bool:
        """True if the cluster has LeaderWorkerSet."""
        return self._groups.synced.is_set() and self._groups.refused is None

    def pod(self, namespace: str, name: str) -> PodSnapshot | None:
        """Returns a pod of an engine by name."""
        return self._pods.items.get(f"{namespace}/{name}")

    def snapshots(self, positions: Positions) -> dict[str, EngineSnapshot]:
        """The current snapshots by workload."""
        shown = (*self._deployments.items.values(), *self._groups.items.values())
        roots = {one.workload: one for one in shown}
        pods: dict[str, list[PodSnapshot]] = defaultdict(list)
        for pod in self._pods.items.values():
            root = roots.get(pod.key.workload)
            # A label is anybody's who makes pods in a namespace of theirs.
            if root is None or root.namespace == pod.namespace:
                pods[pod.key.workload].append(pod)
        admissions = self._attempts.admissions()
        told = {one: _told_of(roots.get(one), pods[one]) for one in roots.keys() | pods.keys()}
        events = self._attempts.events_of({name for names in told.values() for _, name in names})
        found = {}
        for workload, names in told.items():
            own, root = sorted(pods[workload], key=_standing), roots.get(workload)
            admission = admissions.get(_admitted(root, own))
            place = f"{admission.namespace}/{admission.name}" if admission is not None else ""
            found[workload] = EngineSnapshot(
                root=root,
                pods=tuple(own),
                admission=admission,
                events=tuple(event for name in names for event in events.get(name, ())),
                short=self._capacity.is_short,
                lost=frozenset(pod.node for pod in own if self._is_lost(pod)),
                position=positions.get(place, 0),
            )
        return found

    def _is_lost(self, pod: PodSnapshot) -> bool:
        return bool(pod.node) and self._capacity.is_lost(pod.node)


def _standing(pod: PodSnapshot) -> tuple[bool, bool, int, str]:
    return pod.deleting, pod.ended, pod.rank, pod.name


def _has_ended(pod: PodSnapshot) -> bool:
    """Returns True if its engine has ended by itself: of one that is deleted it has to."""
    ended = pod.runner is not None and pod.runner.state == "terminated"
    return ended and not pod.deleting


def _told_of(root: EngineRoot | None, pods: Iterable[PodSnapshot]) -> list[tuple[str, str]]:
    """Namespaces and names of the objects that events tell something of."""
    found = sorted((pod.namespace, pod.name) for pod in pods)
    if root is not None and root.nodes > 1:
        # The sets that LeaderWorkerSet makes: of the first pod, and of the others.
        found += [(root.namespace, root.name), (root.namespace, f"{root.name}-0")]
    return found


def _admitted(root: EngineRoot | None, pods: Sequence[PodSnapshot]) -> str:
    """The uid of what Kueue admits: the pod alone, or a group of them at once."""
    if root is not None and root.nodes > 1:
        return root.uid
    return pods[0].uid if pods else ""


def trim_group(resource: Resource, item: Object) -> EngineRoot | None:
    """Returns what matters of a LeaderWorkerSet; None for one that is no engine's."""
    found = trim_deployment(resource, item)
    size = item["spec"]["leaderWorkerTemplate"].get("size", 1)
    return replace(found, nodes=size) if found is not None else None


def trim_deployment(resource: Resource, item: Object) -> EngineRoot | None:
    """Returns what matters of a Deployment; None for one that is no engine's."""
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
    return EngineRoot(
        resource=resource,
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
        is_lease=marks.get(labels.ROLE) == labels.LEASE_ROLE,
        hosts=notes.get(labels.HOSTS) == "true",
    )


def trim_pod(item: Object) -> PodSnapshot | None:
    """Returns the snapshot of an engine's pod; None for another.

    Where a server beside the engine ran out of memory, its end is told: the engine's follows.
    """
    key = Key((item["metadata"].get("labels") or {}).get(labels.WORKLOAD, ""), 0)
    if not key.workload:
        return None
    found, server = pod_snapshot(item, key, ENGINE), pod_snapshot(item, key, SERVER)
    if server.last_end is None or server.last_end.reason != "OOMKilled":
        return found
    return replace(found, last_end=server.last_end, memory_limit=server.memory_limit)
