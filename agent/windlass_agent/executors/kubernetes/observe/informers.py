"""What the cluster shows of all attempts, kept up to date by watches."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from windlass.kubernetes import labels
from windlass_agent.executors.kubernetes.observe.capacity import Room
from windlass_agent.executors.kubernetes.observe.snapshot import (
    Key,
    Main,
    Note,
    Pod,
    Sight,
    trim_main,
    trim_note,
    trim_pod,
)
from windlass_agent.kube import Informer, Kube
from windlass_agent.kube.resources import EVENTS, JOBS, JOBSETS, PODS, TRAINJOBS, WORKLOADS
from windlass_agent.kueue.workload import Workload

MAINS = (JOBS, JOBSETS, TRAINJOBS)
# Positions by `namespace/name` of Kueue's Workloads.
Positions = Mapping[str, int]
# Of a sight, in its order.
Parts = tuple[
    Main | None, tuple[Pod, ...], Workload | None, tuple[Note, ...], frozenset[str], bool, int
]


class Following:
    """Informers of our objects in every namespace, put together by attempt."""

    def __init__(
        self,
        kube: Kube,
        *,
        cluster_id: str,
        room: Room,
        changed: Callable[[], None],
    ):
        self._room = room
        # What the last look made of its parts.
        self._known: dict[Key, tuple[Parts, Sight]] = {}

        def informer(path: str, trim: Callable[[dict[str, Any]], Any], **selectors: str) -> Any:
            return Informer(kube, path, trim=trim, changed=changed, **selectors)

        ours = {"label_selector": f"{labels.CLUSTER}={cluster_id}"}
        self._mains: list[Informer[Main]] = [
            informer(resource.path(), partial(trim_main, resource.kind), **ours)
            for resource in MAINS
        ]
        self._pods: Informer[Pod] = informer(PODS.path(), trim_pod, **ours)
        # Kueue gives its objects no label of ours.
        self._admissions: Informer[Workload] = informer(WORKLOADS.path(), Workload.parse)
        self._notes: Informer[Note] = informer(
            EVENTS.path(), trim_note, field_selector="type=Warning"
        )
        self._informers: list[Informer[Any]] = [
            *self._mains, self._pods, self._admissions, self._notes,
        ]  # fmt: skip

    async def run(self) -> None:
        """Keeps all of them up to date until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._room.run())
            for informer in self._informers:
                group.create_task(informer.run())

    @property
    def settled(self) -> bool:
        """Whether each kind was seen, or is known not to be shown."""
        shown = all(one.synced.is_set() or one.refused for one in self._informers)
        return shown and self._room.settled

    def sights(self, positions: Positions) -> dict[Key, Sight]:
        """Everything as it is now; the very same where nothing changed."""
        mains = {main.key: main for informer in self._mains for main in informer.items.values()}
        pods: dict[Key, list[Pod]] = defaultdict(list)
        for pod in self._pods.items.values():
            pods[pod.key].append(pod)
        owned = {one.owner: one for one in self._admissions.items.values() if one.owner}
        notes = self._notes_by_attempt(mains.values())
        short = self._room.is_short
        found = {}
        for key in mains.keys() | pods.keys():
            main = mains.get(key)
            admission = owned.get(main.uid) if main is not None else None
            place = f"{admission.namespace}/{admission.name}" if admission is not None else ""
            parts = (
                main,
                tuple(sorted(pods.get(key, ()), key=lambda pod: (pod.rank, pod.name))),
                admission,
                tuple(notes.get(key, ())),
                self._lost(pods.get(key, ())),
                short,
                positions.get(place, 0),
            )
            known = self._known.get(key)
            # Of a thousand that wait, few change between two looks.
            found[key] = known if known is not None and known[0] == parts else _sighted(parts)
        self._known = found
        return {key: sight for key, (_, sight) in found.items()}

    def pod(self, namespace: str, name: str) -> Pod | None:
        """One of our pods."""
        return self._pods.items.get(f"{namespace}/{name}")

    def admission(self, owner: str) -> Workload | None:
        """Kueue's Workload of an object, by the object's uid."""
        found = (one for one in self._admissions.items.values() if one.owner == owner)
        return next(found, None)

    def _lost(self, pods: Iterable[Pod]) -> frozenset[str]:
        names = {pod.node for pod in pods if pod.node}
        return frozenset(name for name in names if self._room.is_lost(name))

    def _notes_by_attempt(self, mains: Iterable[Main]) -> dict[Key, list[Note]]:
        found: dict[Key, list[Note]] = defaultdict(list)
        if self._notes.items:
            names = {(main.namespace, main.name): main.key for main in mains}
            for note in self._notes.items.values():
                key = _attempt_of(note, names)
                if key is not None:
                    found[key].append(note)
        return found


def _sighted(parts: Parts) -> tuple[Parts, Sight]:
    main, pods, admission, notes, lost, short, position = parts
    return parts, Sight(
        main=main,
        pods=pods,
        admission=admission,
        notes=notes,
        lost=lost,
        short=short,
        position=position,
    )


def _attempt_of(note: Note, names: Mapping[tuple[str, str], Key]) -> Key | None:
    """Whose object it concerns: what controllers make bears its maker's name, a dash and more."""
    name = note.name
    while name:
        if key := names.get((note.namespace, name)):
            return key
        name = name.rpartition("-")[0]
    return None
