"""Cluster calls of an engine: create and remove."""

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.kubernetes.names import engine_name
from windlass_agent.executors.kubernetes.engines.observed import EngineRoot
from windlass_agent.executors.kubernetes.observe.capacity import ClusterCapacity
from windlass_agent.executors.kubernetes.observe.diagnosis import Diagnosis, failure
from windlass_agent.executors.kubernetes.observe.failures import missing_queue
from windlass_agent.executors.kubernetes.observe.refusals import unlaunched
from windlass_agent.executors.kubernetes.render.engine import render
from windlass_agent.executors.kubernetes.render.engine_plan import EnginePlan
from windlass_agent.executors.kubernetes.render.shapes import owned
from windlass_agent.executors.kubernetes.settings import ClusterSettings
from windlass_agent.kube import Conflict, Kube, KubeError, ResourceNotFound
from windlass_agent.kube.errors import Unrenderable
from windlass_agent.kube.resources import (
    DEPLOYMENTS,
    LEADERWORKERSETS,
    RESOURCECLAIMTEMPLATES,
    Resource,
)


class EngineLauncher:
    """Calls that are all idempotent; they raise KubeError for errors that may pass."""

    def __init__(self, kube: Kube, settings: ClusterSettings, capacity: ClusterCapacity):
        self._kube = kube
        self._settings = settings
        self._capacity = capacity

    async def apply(self, workload: pb.Workload) -> Diagnosis | None:
        """Creates an engine's objects; returns what prevents it, None once all exist."""
        place = workload.placement
        covered = self._capacity.covered(place.namespace, place.queue) if place.queue else None
        try:
            *companions, body = render(EnginePlan.of(workload, self._settings, covered))
        except Unrenderable as error:
            return failure(error.reason, error.message)
        except ValueError as error:
            # Of a server that is newer than this agent.
            return failure("InvalidWorkload", f"The agent does not know its settings: {error}")
        if place.queue and covered is None:
            where = f"LocalQueue {place.queue} in namespace {place.namespace}"
            return missing_queue(f"{where} doesn't exist, or leads to no ClusterQueue.")
        name = body["metadata"]["name"]
        template = RESOURCECLAIMTEMPLATES.path(place.namespace, name)
        try:
            # Its pod needs it; it gets its owner once that has a name.
            for item in companions:
                await self._kube.apply(template, item)
            owner = await self._kube.apply(_kind(workload).path(place.namespace, name), body)
            for item in companions:
                await self._kube.apply(template, owned(item, owner))
        except KubeError as error:
            return unlaunched(error, place.namespace)
        return None

    async def delete(self, workload: pb.Workload, shown: EngineRoot | None) -> None:
        """Deletes an engine's objects; its open requests go on to their ends."""
        namespace = shown.namespace if shown is not None else workload.placement.namespace
        name = shown.name if shown is not None else engine_name(workload.id)
        await self._remove(RESOURCECLAIMTEMPLATES.path(namespace, name))
        uid, kind = (shown.uid, shown.resource) if shown is not None else ("", _kind(workload))
        await self._remove(kind.path(namespace, name), uid=uid)

    async def _remove(self, path: str, *, uid: str = "") -> None:
        try:
            await self._kube.delete(path, propagation="Foreground", uid=uid)
        except (ResourceNotFound, Conflict):
            # Gone, or another one of that name.
            return


def _kind(workload: pb.Workload) -> Resource:
    return LEADERWORKERSETS if workload.engine.nodes > 1 else DEPLOYMENTS
