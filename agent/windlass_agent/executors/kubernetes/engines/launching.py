"""Cluster calls of an engine: create and remove."""

from collections.abc import Collection

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.kubernetes.names import engine_name
from windlass_agent.executors.kubernetes.engines.observed import EngineRoot
from windlass_agent.executors.kubernetes.engines.residents import Residents
from windlass_agent.executors.kubernetes.observe.capacity import ClusterCapacity
from windlass_agent.executors.kubernetes.observe.diagnosis import Diagnosis, failure, waits
from windlass_agent.executors.kubernetes.observe.failures import missing_queue
from windlass_agent.executors.kubernetes.observe.refusals import unlaunched
from windlass_agent.executors.kubernetes.render.engine import render
from windlass_agent.executors.kubernetes.render.engine_plan import EnginePlan
from windlass_agent.executors.kubernetes.render.lease import render_lease
from windlass_agent.executors.kubernetes.render.parts import ClaimHolder, Object
from windlass_agent.executors.kubernetes.render.prefetch import render_prefetch
from windlass_agent.executors.kubernetes.render.shapes import owned
from windlass_agent.executors.kubernetes.render.weights import store_claim
from windlass_agent.executors.kubernetes.settings import ClusterSettings
from windlass_agent.kube import Conflict, Kube, KubeError, ResourceNotFound
from windlass_agent.kube.errors import Unrenderable
from windlass_agent.kube.resources import (
    DEPLOYMENTS,
    LEADERWORKERSETS,
    PVCS,
    RESOURCECLAIMTEMPLATES,
    Resource,
)


class EngineLauncher:
    """Calls that are all idempotent; they raise KubeError for errors that may pass."""

    def __init__(
        self,
        kube: Kube,
        settings: ClusterSettings,
        capacity: ClusterCapacity,
        residents: Residents,
    ):
        self._residents = residents
        self._kube = kube
        self._settings = settings
        self._capacity = capacity

    async def apply(
        self, workload: pb.Workload, holder: ClaimHolder | None = None
    ) -> Diagnosis | None:
        """Creates an engine's objects; returns what prevents it, None once all exist.

        `holder` is the pod of the lease that it sits on, if it does.
        """
        if workload.engine.trainer.lease_id and holder is None:
            return waits("NoLease", "The pod that holds its devices does not run.", "setup")
        place = workload.placement
        queue = place.queue
        covered = self._capacity.covered(place.namespace, queue) if queue else None
        try:
            if holder is not None and not holder.claim:
                return self._residents.place(holder.uid, self._plan(workload, covered, holder))
            *companions, body = self._rendered(workload, covered, holder)
        except Unrenderable as error:
            return failure(error.reason, error.message)
        except ValueError as error:
            # Of a server that is newer than this agent.
            return failure("InvalidWorkload", f"The agent does not know its settings: {error}")
        # Files need no quota.
        if queue and covered is None and not workload.HasField("prefetch"):
            where = f"LocalQueue {queue} in namespace {place.namespace}"
            return missing_queue(f"{where} doesn't exist, or leads to no ClusterQueue.")
        name = body["metadata"]["name"]
        template = RESOURCECLAIMTEMPLATES.path(place.namespace, name)
        try:
            await self._make_store(place.namespace)
            # Its pod needs it; it gets its owner once that has a name.
            for item in companions:
                await self._kube.apply(template, item)
            owner = await self._kube.apply(_kind(workload).path(place.namespace, name), body)
            for item in companions:
                await self._kube.apply(template, owned(item, owner))
        except KubeError as error:
            return unlaunched(error, place.namespace)
        return None

    def _rendered(
        self,
        workload: pb.Workload,
        covered: Collection[str] | None,
        holder: ClaimHolder | None,
    ) -> list[Object]:
        if workload.HasField("prefetch"):
            return [render_prefetch(workload, self._settings, covered)]
        if workload.HasField("lease"):
            choice = self._capacity.choice(workload.lease.accelerator)
            return render_lease(workload, self._settings, covered, choice)
        return render(self._plan(workload, covered, holder))

    def _plan(
        self,
        workload: pb.Workload,
        covered: Collection[str] | None,
        holder: ClaimHolder | None,
    ) -> EnginePlan:
        choice = self._capacity.choice(workload.engine.accelerator)
        return EnginePlan.of(workload, self._settings, covered, choice, holder)

    async def _make_store(self, namespace: str) -> None:
        """Makes the claim for weights where it is missing; one that is there stays as it is."""
        claim = store_claim(self._settings.engines.weights, namespace)
        if claim is None:
            return
        path = PVCS.path(namespace, claim["metadata"]["name"])
        try:
            await self._kube.get(path)
        except ResourceNotFound:
            await self._kube.apply(path, claim)

    async def delete(self, workload: pb.Workload, shown: EngineRoot | None) -> None:
        """Deletes an engine's objects; its open requests go on to their ends."""
        if shown is not None and shown.is_resident:
            self._residents.end(shown.uid, workload.id)
            return
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
