"""Objects of ours in the cluster: seen by informers, put right where they differ."""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from windlass.core.backoff import Backoff
from windlass.kubernetes.labels import PROJECT
from windlass_agent.inventory.informers import ClusterInformers, bare
from windlass_agent.kube import Forbidden, Informer, Kube, KubeError, ResourceNotFound
from windlass_agent.kube.resources import (
    CLUSTERQUEUES,
    COHORTS,
    LOCALQUEUES,
    NAMESPACES,
    NETWORKPOLICIES,
    RESOURCEFLAVORS,
    ROLEBINDINGS,
    SERVICEACCOUNTS,
    Resource,
)
from windlass_agent.namespaces.drift import covers, signed
from windlass_agent.namespaces.manifests import Item
from windlass_agent.namespaces.sentences import AssignmentRefused, sentence

Object = dict[str, Any]


class ManagedObjects:
    """Namespaces of projects with what we made in them, and all of Kueue's quota objects."""

    def __init__(self, kube: Kube, informers: ClusterInformers, changed: Callable[[], None]):
        def ours(resource: Resource) -> Informer[Object]:
            return Informer(
                kube, resource.path(), label_selector=PROJECT, trim=bare, changed=changed
            )

        self._kube = kube
        self._own: dict[Resource, Informer[Object]] = {
            resource: ours(resource)
            for resource in (NAMESPACES, SERVICEACCOUNTS, ROLEBINDINGS, NETWORKPOLICIES)
        }
        shared: dict[Resource, Informer[Object]] = {
            LOCALQUEUES: informers.local_queues,
            CLUSTERQUEUES: informers.cluster_queues,
            RESOURCEFLAVORS: informers.flavors,
            COHORTS: informers.cohorts,
        }
        informers.listen(changed, *shared)
        self._informers = self._own | shared

    async def run(self) -> None:
        """Keeps its own informers up to date until cancelled."""
        async with asyncio.TaskGroup() as group:
            for resource, informer in self._own.items():
                group.create_task(informer.run(), name=f"watch our {resource.plural}")

    def settled(self) -> bool:
        """Returns True if what is ours was seen once, or is known not to be shown."""
        return all(one.synced.is_set() or one.refused for one in self._own.values())

    def find(self, resource: Resource, name: str, namespace: str = "") -> Object | None:
        """An object as it is."""
        key = f"{namespace}/{name}" if namespace else name
        return self._informers[resource].items.get(key)

    def all(self, resource: Resource, namespace: str = "") -> list[Object]:
        """Objects of a kind, those of a namespace where one is named."""
        prefix = f"{namespace}/" if namespace else ""
        items = self._informers[resource].items.items()
        return [item for key, item in items if key.startswith(prefix)]

    async def settle(self, item: Item, *, patience_seconds: float = 0.0) -> bool:
        """Applies a manifest unless it is in force; returns whether it did.

        A right that was granted a moment ago may take up to `patience_seconds` to be known.
        Raises AssignmentRefused.
        """
        resource, body = item
        name, namespace = body["metadata"]["name"], body["metadata"].get("namespace", "")
        wanted, actual = signed(body), self.find(resource, name, namespace)
        if actual is not None and covers(actual, wanted):
            return False
        until, backoff = time.monotonic() + patience_seconds, Backoff(shortest=0.05, longest=1.0)
        while True:
            try:
                await self._put(resource, name, namespace, wanted, actual)
                return True
            except Forbidden as error:
                # Where the agent may not write, somebody may have made it by hand.
                if actual is not None and covers(actual, body):
                    return False
                if time.monotonic() > until:
                    raise AssignmentRefused(sentence(error, resource, name)) from error
            except KubeError as error:
                raise AssignmentRefused(sentence(error, resource, name)) from error
            await backoff.pause()

    async def delete(self, resource: Resource, item: Object) -> None:
        """Deletes just this object, should it be there still; raises AssignmentRefused."""
        metadata = item["metadata"]
        path = resource.path(metadata.get("namespace", ""), metadata["name"])
        try:
            with suppress(ResourceNotFound):
                await self._kube.delete(path, uid=metadata["uid"])
        except KubeError as error:
            raise AssignmentRefused(sentence(error, resource, metadata["name"])) from error

    async def _put(
        self, resource: Resource, name: str, namespace: str, wanted: Object, actual: Object | None
    ) -> None:
        path = resource.path(namespace, name)
        if resource is ROLEBINDINGS and actual and actual["roleRef"] != wanted["roleRef"]:
            # What a binding binds to cannot be changed.
            with suppress(ResourceNotFound):
                await self._kube.delete(path, uid=actual["metadata"]["uid"])
        await self._kube.apply(path, wanted)
