"""Informers of everything that the inventory is made of."""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from windlass_agent.inventory.devices import trim_claim, trim_class, trim_slice
from windlass_agent.inventory.nodes import trim_node
from windlass_agent.inventory.pods import trim_pod
from windlass_agent.kube import Forbidden, Informer, Kube
from windlass_agent.kube.resources import (
    CLUSTERQUEUES,
    COHORTS,
    DEVICECLASSES,
    LOCALQUEUES,
    NODES,
    PODS,
    RESOURCECLAIMS,
    RESOURCEFLAVORS,
    RESOURCESLICES,
    WORKLOADPRIORITYCLASSES,
    Resource,
)

# The server leaves out what has ended, and says so when a pod ends.
_LIVE_PODS = "status.phase!=Succeeded,status.phase!=Failed"
# A kind that does not answer, such as one whose conversion webhook is away, is not waited for
# longer than this.
PATIENCE_SECONDS = 30.0
_PURPOSES = {
    "kueue.x-k8s.io": "Kueue: no queues and no quota",
    "resource.k8s.io": "Dynamic Resource Allocation: no device classes",
}


def bare(item: dict[str, Any]) -> dict[str, Any]:
    """The object without the notes of who wrote which field, mostly half of it."""
    item["metadata"].pop("managedFields", None)
    return item


class ClusterInformers:
    """Informers of a cluster's objects; a kind that cannot be listed stays empty.

    One agent has one of these, for all that looks at the cluster.
    """

    def __init__(self, kube: Kube):
        def informer(resource: Resource, trim: Callable[[dict[str, Any]], Any]) -> Informer[Any]:
            return Informer(kube, resource.path(), trim=trim)

        self.nodes = informer(NODES, trim_node)
        self.pods = Informer(kube, PODS.path(), field_selector=_LIVE_PODS, trim=trim_pod)
        self.cluster_queues = informer(CLUSTERQUEUES, bare)
        self.local_queues = informer(LOCALQUEUES, bare)
        self.flavors = informer(RESOURCEFLAVORS, bare)
        self.cohorts = informer(COHORTS, bare)
        self.priority_classes = informer(WORKLOADPRIORITYCLASSES, bare)
        self.device_classes = informer(DEVICECLASSES, trim_class)
        self.slices = informer(RESOURCESLICES, trim_slice)
        self.claims = informer(RESOURCECLAIMS, trim_claim)
        self._began = time.monotonic()
        self._informers: Mapping[Resource, Informer[Any]] = {
            NODES: self.nodes,
            PODS: self.pods,
            CLUSTERQUEUES: self.cluster_queues,
            LOCALQUEUES: self.local_queues,
            RESOURCEFLAVORS: self.flavors,
            COHORTS: self.cohorts,
            WORKLOADPRIORITYCLASSES: self.priority_classes,
            DEVICECLASSES: self.device_classes,
            RESOURCESLICES: self.slices,
            RESOURCECLAIMS: self.claims,
        }

    def listen(self, changed: Callable[[], None], *resources: Resource) -> None:
        """Has `changed` called after a change of these kinds; of any, when none is named."""
        for resource in resources or self._informers:
            self._informers[resource].listen(changed)

    async def run(self) -> None:
        """Keeps all of them up to date until cancelled."""
        self._began = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for resource, informer in self._informers.items():
                group.create_task(informer.run(), name=f"watch {resource.plural}")

    def settled(self) -> bool:
        """Returns True if each kind was seen once, is known not to be shown, or was waited for."""
        needed: Iterable[Informer[Any]] = self._informers.values()
        if time.monotonic() - self._began > PATIENCE_SECONDS:
            needed = (self.nodes, self.pods)
        return all(one.synced.is_set() or one.refused for one in needed)

    def sees_pods(self) -> bool:
        """Returns True if a pod that is not seen is not there."""
        return self.pods.synced.is_set() and not self.pods.refused

    def has_kueue(self) -> bool:
        """Returns True if queues can be seen here."""
        return self.cluster_queues.synced.is_set() and not self.cluster_queues.refused

    def missing(self) -> dict[str, str]:
        """The kinds that cannot be seen, as `PLURAL.GROUP`, each with a sentence on its effect."""
        found = {}
        for resource, informer in self._informers.items():
            if informer.refused is None:
                continue
            name = f"{resource.plural}.{resource.group}".rstrip(".")
            purpose = _PURPOSES.get(resource.group, "the inventory is not complete")
            if isinstance(informer.refused, Forbidden):
                found[name] = f"The agent may not list {name} ({purpose}); see its ClusterRole."
            else:
                found[name] = f"The cluster does not serve {name} ({purpose})."
        return found
