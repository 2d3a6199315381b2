"""Watches of all attempts' objects in the cluster."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Mapping
from functools import partial
from typing import Any

from windlass.kubernetes import labels
from windlass_agent.executors.kubernetes.observe.capacity import ClusterCapacity
from windlass_agent.executors.kubernetes.observe.snapshot import (
    AttemptSnapshot,
    Key,
    KubeEvent,
    PodSnapshot,
    RootObject,
    trim_event,
    trim_pod,
    trim_root,
)
from windlass_agent.kube import Informer, Kube
from windlass_agent.kube.resources import EVENTS, JOBS, JOBSETS, PODS, TRAINJOBS, WORKLOADS
from windlass_agent.kueue.workload import Workload

ROOTS = (JOBS, JOBSETS, TRAINJOBS)
# Positions by `namespace/name` of Kueue's Workloads.
Positions = Mapping[str, int]
# Of a snapshot, in its order.
Parts = tuple[
    RootObject | None,
    tuple[PodSnapshot, ...],
    Workload | None,
    tuple[KubeEvent, ...],
    frozenset[str],
    bool,
    int,
]


class AttemptInformers:
    """Informers of our objects in every namespace, put together by attempt."""

    def __init__(
        self,
        kube: Kube,
        *,
        cluster_id: str,
        capacity: ClusterCapacity,
        changed: Callable[[], None],
    ):
        self._capacity = capacity
        # What the last look made of its parts.
        self._known: dict[Key, tuple[Parts, AttemptSnapshot]] = {}

        def informer(path: str, trim: Callable[[dict[str, Any]], Any], **selectors: str) -> Any:
            return Informer(kube, path, trim=trim, changed=changed, **selectors)

        ours = {"label_selector": f"{labels.CLUSTER}={cluster_id}"}
        self._roots: list[Informer[RootObject]] = [
            informer(resource.path(), partial(trim_root, resource.kind), **ours)
            for resource in ROOTS
        ]
        self._pods: Informer[PodSnapshot] = informer(PODS.path(), trim_pod, **ours)
        # Kueue gives its objects no label of ours.
        self._admissions: Informer[Workload] = informer(WORKLOADS.path(), Workload.parse)
        self._events: Informer[KubeEvent] = informer(
            EVENTS.path(), trim_event, field_selector="type=Warning"
        )
        self._informers: list[Informer[Any]] = [
            *self._roots, self._pods, self._admissions, self._events,
        ]  # fmt: skip

    async def run(self) -> None:
        """Keeps all of them up to date until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._capacity.run())
            for informer in self._informers:
                group.create_task(informer.run())

    @property
    def settled(self) -> bool:
        """True if each kind was listed, or is known not to be readable."""
        shown = all(one.synced.is_set() or one.refused for one in self._informers)
        return shown and self._capacity.settled

    def snapshots(self, positions: Positions) -> dict[Key, AttemptSnapshot]:
        """The current snapshots; the same object for an unchanged attempt."""
        roots = {root.key: root for informer in self._roots for root in informer.items.values()}
        pods: dict[Key, list[PodSnapshot]] = defaultdict(list)
        for pod in self._pods.items.values():
            pods[pod.key].append(pod)
        owned = self.admissions()
        events = self._events_by_attempt(roots.values())
        short = self._capacity.is_short
        found = {}
        for key in roots.keys() | pods.keys():
            root = roots.get(key)
            admission = owned.get(root.uid) if root is not None else None
            place = f"{admission.namespace}/{admission.name}" if admission is not None else ""
            parts = (
                root,
                tuple(sorted(pods.get(key, ()), key=lambda pod: (pod.rank, pod.name))),
                admission,
                tuple(events.get(key, ())),
                self._lost(pods.get(key, ())),
                short,
                positions.get(place, 0),
            )
            known = self._known.get(key)
            # Of a thousand that wait, few change between two looks.
            found[key] = known if known is not None and known[0] == parts else _sighted(parts)
        self._known = found
        return {key: snapshot for key, (_, snapshot) in found.items()}

    def pod(self, namespace: str, name: str) -> PodSnapshot | None:
        """Returns a pod of an attempt by name."""
        return self._pods.items.get(f"{namespace}/{name}")

    def admission(self, owner: str) -> Workload | None:
        """Kueue's Workload of an object, by the object's uid."""
        found = (one for one in self._admissions.items.values() if one.owner == owner)
        return next(found, None)

    def admissions(self) -> dict[str, Workload]:
        """Kueue's Workloads by the uid of the object that each is of."""
        return {one.owner: one for one in self._admissions.items.values() if one.owner}

    def events_of(self, names: Container[str]) -> dict[tuple[str, str], list[KubeEvent]]:
        """Events about objects of these names, by namespace and name."""
        found: dict[tuple[str, str], list[KubeEvent]] = defaultdict(list)
        for event in self._events.items.values():
            if event.name in names:
                found[event.namespace, event.name].append(event)
        return found

    def _lost(self, pods: Iterable[PodSnapshot]) -> frozenset[str]:
        names = {pod.node for pod in pods if pod.node}
        return frozenset(name for name in names if self._capacity.is_lost(name))

    def _events_by_attempt(self, roots: Iterable[RootObject]) -> dict[Key, list[KubeEvent]]:
        found: dict[Key, list[KubeEvent]] = defaultdict(list)
        if self._events.items:
            names = {(root.namespace, root.name): root.key for root in roots}
            for event in self._events.items.values():
                key = _attempt_of(event, names)
                if key is not None:
                    found[key].append(event)
        return found


def _sighted(parts: Parts) -> tuple[Parts, AttemptSnapshot]:
    root, pods, admission, events, lost, short, position = parts
    return parts, AttemptSnapshot(
        root=root,
        pods=pods,
        admission=admission,
        events=events,
        lost=lost,
        short=short,
        position=position,
    )


def _attempt_of(event: KubeEvent, names: Mapping[tuple[str, str], Key]) -> Key | None:
    """Returns whose object it concerns: what controllers make bears its maker's name, a dash and
    more.
    """
    name = event.name
    while name:
        if key := names.get((event.namespace, name)):
            return key
        name = name.rpartition("-")[0]
    return None
