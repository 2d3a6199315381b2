"""Capacity of the cluster for jobs and engines: its nodes, and the queues in front of them."""

import math
from collections.abc import Callable, Collection, Mapping
from typing import Any

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.engine_flags import lightens
from windlass_agent.executors.kubernetes.settings import ClusterSettings
from windlass_agent.executors.port import ADOPTED
from windlass_agent.inventory.accelerators import device_memory
from windlass_agent.inventory.devices import node_devices
from windlass_agent.inventory.informers import ClusterInformers
from windlass_agent.inventory.shapes import NodeChoice, node_choice, node_shapes
from windlass_agent.kube import Informer
from windlass_agent.kube.resources import (
    CLUSTERQUEUES,
    DEVICECLASSES,
    LOCALQUEUES,
    NODES,
    RESOURCEFLAVORS,
    RESOURCESLICES,
)

# Of these are the shapes of nodes.
_SHAPED = (NODES, RESOURCEFLAVORS, DEVICECLASSES, RESOURCESLICES)
# Where Kueue queues there is no end of places.
SLOTS = 1_000_000
Object = Mapping[str, Any]


class ClusterCapacity:
    """Capacity for jobs, kept current by informers."""

    def __init__(
        self, informers: ClusterInformers, settings: ClusterSettings, changed: Callable[[], None]
    ):
        # Of claimed devices, the class.
        self._known = frozenset(one.resource or one.device_class for one in settings.accelerators)
        self._engine_priorities = sorted(settings.engines.priority_classes)
        self._shapes: list[pb.NodeShape] | None = None
        self._counted = frozenset(one.resource for one in settings.accelerators if one.resource)
        self._backends = sorted(settings.backends)
        self._libraries = sorted(settings.libraries)
        self._engines = [*sorted(settings.engines.images), ADOPTED]
        self._trains = bool(settings.engines.trainers.image)
        # By a claim, or in one pod where devices are counted.
        self._shares_claims = self._trains and bool(settings.accelerators)
        self._each_engine = pb.EngineShare(
            gpus=settings.engines.gpus,
            cpu_millis=math.ceil(1000 * settings.engines.cpus),
            memory_bytes=settings.engines.memory_bytes,
        )
        self._engine_slots = settings.engines.slots if settings.engines.images else 0
        flags = (flag for one in settings.engines.images.values() for flag in one.flags)
        self._lightened = any(map(lightens, flags))
        self._keeps_models = bool(settings.engines.images and settings.engines.weights.claim)
        self._informers = informers
        informers.listen(self._forget, *_SHAPED)
        # Of each kind that `settled` waits for: who waits for that is woken by nothing else.
        informers.listen(changed, *_SHAPED, LOCALQUEUES, CLUSTERQUEUES)

    async def run(self) -> None:
        """Keeps the capacity current until cancelled."""
        await self._informers.run()

    @property
    def settled(self) -> bool:
        """True if each kind was listed, or is known not to be readable."""
        seen = self._informers
        needed: tuple[Informer[Any], ...] = (
            seen.nodes, seen.local_queues, seen.cluster_queues, seen.flavors, seen.device_classes,
            seen.slices,
        )  # fmt: skip
        return all(one.synced.is_set() or one.refused for one in needed)

    def is_lost(self, node: str) -> bool:
        """Returns True if a node is unreachable or gone; False if nodes cannot be read."""
        nodes = self._informers.nodes.items
        if not nodes:
            return False
        found = nodes.get(node)
        return found is None or not found.ready

    @property
    def is_short(self) -> bool:
        """True if some node is temporarily unschedulable."""
        nodes = self._informers.nodes.items.values()
        return not all(node.ready and node.schedulable for node in nodes)

    def device_memory(self, node: str) -> int:
        """Bytes of each GPU of a node; 0 where that is not known, or not the same of all."""
        found = self._informers.nodes.items.get(node)
        if found is None:
            return 0
        sizes = {device_memory(kind, found.labels) for kind, *_ in found.accelerators}
        return sizes.pop() if len(sizes) == 1 else 0

    def behind(self, namespace: str, queue: str) -> str:
        """The ClusterQueue of a LocalQueue; empty when there is no such queue."""
        found = self._informers.local_queues.items.get(f"{namespace}/{queue}", {})
        return str(_spec(found).get("clusterQueue", ""))

    def covered(self, namespace: str, queue: str) -> Collection[str] | None:
        """The resources that a LocalQueue has quota for; None if the queue does not exist."""
        found = self._informers.cluster_queues.items.get(self.behind(namespace, queue))
        if found is None:
            return None
        groups = _spec(found).get("resourceGroups") or ()
        return frozenset(name for group in groups for name in group.get("coveredResources") or ())

    def capacity(self, used: int, *, engines: int = 0) -> pb.Capacity:
        """The capacity with `used` jobs and engines on it, which the inventory soon replaces."""
        there = self._informers.nodes.items.values()
        nodes = [node for node in there if node.ready and node.schedulable]
        return pb.Capacity(
            slots=SLOTS,
            used_slots=used,
            gpus=sum(
                allocatable
                for node in nodes
                for resource, _, allocatable in node.accelerators
                if resource in self._counted
            ),
            cpus=sum(node.cpu_millis for node in nodes) // 1000,
            memory_bytes=sum(node.memory_bytes for node in nodes),
            backends=self._backends,
            libraries=self._libraries,
            engines=self._engines,
            engine_slots=self._engine_slots,
            used_engine_slots=engines,
            keeps_models=self._keeps_models,
            trains=self._trains,
            shares_claims=self._shares_claims,
            engine_priorities=self._engine_priorities,
            node_shapes=self.shapes if self._engine_slots else (),
            each_engine=self._each_engine if self._engine_slots else None,
        )

    @property
    def shapes(self) -> list[pb.NodeShape]:
        """The shapes of the cluster's nodes, counted anew after one has changed."""
        if self._shapes is None:
            seen = self._informers
            claimed = node_devices(seen.device_classes.items, seen.slices.items.values())
            self._shapes = node_shapes(seen.nodes.items, claimed, seen.flavors.items, self._known)
            if self._lightened:
                # What fits there is not known: the planner goes by the size of the files.
                for one in self._shapes:
                    one.device_memory_bytes = 0
        return self._shapes

    def choice(self, accelerator: str) -> NodeChoice | None:
        """The choice that an accelerator's name stands for; None for no name or an unknown one."""
        if not accelerator:
            return None
        seen = self._informers
        return node_choice(accelerator, seen.nodes.items, seen.flavors.items, self._known)

    def _forget(self) -> None:
        self._shapes = None


def _spec(item: Object) -> Object:
    return item.get("spec") or {}
