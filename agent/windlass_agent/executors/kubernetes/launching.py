"""Cluster calls of an attempt: create, stop gracefully, kill, remove."""

import contextlib

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.kubernetes import labels
from windlass_agent.executors.kubernetes.attempt_state import AttemptState
from windlass_agent.executors.kubernetes.observe.capacity import ClusterCapacity
from windlass_agent.executors.kubernetes.observe.diagnosis import Diagnosis, failure
from windlass_agent.executors.kubernetes.observe.failures import missing_queue
from windlass_agent.executors.kubernetes.observe.refusals import unlaunched
from windlass_agent.executors.kubernetes.observe.snapshot import Key, RootObject
from windlass_agent.executors.kubernetes.render.shapes import Object, Unrenderable, owned, render
from windlass_agent.executors.kubernetes.settings import ClusterSettings
from windlass_agent.kube import Conflict, Forbidden, Invalid, Kube, KubeError, ResourceNotFound
from windlass_agent.kube.resources import (
    JOBS,
    JOBSETS,
    PODS,
    RESOURCECLAIMTEMPLATES,
    SERVICES,
    TRAININGRUNTIMES,
    TRAINJOBS,
    Resource,
)

_MAINS = {resource.kind: resource for resource in (JOBS, JOBSETS, TRAINJOBS)}
_COMPANIONS = {
    resource.kind: resource for resource in (SERVICES, RESOURCECLAIMTEMPLATES, TRAININGRUNTIMES)
}
_KINDS = _MAINS | _COMPANIONS
# So that what is killed still has the second in which a shell would pass the signal on.
KILL_SECONDS = 1


class Launcher:
    """Calls that are all idempotent; they raise KubeError for errors that may pass."""

    def __init__(self, kube: Kube, settings: ClusterSettings, capacity: ClusterCapacity):
        self._kube = kube
        self._settings = settings
        self._capacity = capacity

    async def launch(self, state: AttemptState, workload: pb.Workload) -> Diagnosis | None:
        """Creates an attempt's objects; returns what prevents it, None once all exist."""
        place = workload.placement
        covered = self._capacity.covered(place.namespace, place.queue) if place.queue else None
        try:
            *companions, body = render(workload, self._settings, covered=covered)
        except Unrenderable as error:
            return failure(error.reason, error.message)
        if place.queue and covered is None:
            where = f"LocalQueue {place.queue} in namespace {place.namespace}"
            return missing_queue(f"{where} doesn't exist, or leads to no ClusterQueue.")
        state.path = _path(body)
        state.unowned = [_path(item) for item in companions]
        try:
            # Some must be there before what uses them; they get their owner once it has a name.
            for item in companions:
                await self._kube.apply(_path(item), item)
            owner = await self._apply_main(body)
            await self._own(state, companions, owner)
        except KubeError as error:
            return unlaunched(error, place.namespace)
        return None

    async def complete(self, state: AttemptState, workload: pb.Workload, root: RootObject) -> None:
        """Creates the missing objects of an attempt that an earlier agent process was launching."""
        place = workload.placement
        covered = self._capacity.covered(place.namespace, place.queue) if place.queue else None
        try:
            *companions, body = render(workload, self._settings, covered=covered)
        except Unrenderable:
            # The settings have changed; it lives on as it was made.
            return
        owner = body | {"metadata": {"name": root.name, "uid": root.uid}}
        with contextlib.suppress(Invalid, Conflict):
            await self._own(state, companions, owner)

    async def _apply_main(self, body: Object) -> Object:
        try:
            return await self._kube.apply(_path(body), body, force=False)
        except Conflict:
            # It exists, and Kueue has taken it over.
            return await self._kube.get(_path(body))

    async def _own(self, state: AttemptState, companions: list[Object], owner: Object) -> None:
        for item in companions:
            await self._kube.apply(_path(item), owned(item, owner))
        state.unowned = []

    async def exists(self, state: AttemptState) -> bool:
        """Returns True if the attempt's root object exists."""
        try:
            await self._kube.get(state.path)
        except ResourceNotFound:
            return False
        return True

    async def stop(self, state: AttemptState) -> None:
        """Stops an attempt gracefully: pods get SIGTERM and their grace period."""
        root = _root_of(state)
        if root is not None:
            path = _MAINS[root.kind].path(root.namespace, root.name)
            await self.delete(path, uid=root.uid)
        elif state.path:
            # Not shown to us yet; the name is this attempt's alone.
            await self.delete(state.path)
        for path in state.unowned:
            await self.delete(path)

    async def kill(self, state: AttemptState) -> None:
        """Deletes an attempt without a grace period."""
        await self.stop(state)
        for pod in state.snapshot.pods if state.snapshot is not None else ():
            if not pod.ended:
                path = PODS.path(pod.namespace, pod.name)
                await self.delete(path, uid=pod.uid, grace_seconds=KILL_SECONDS)

    async def orphans(self, cluster_id: str) -> dict[Key, list[str]]:
        """Objects without an owner, by attempt, which an interrupted launch left behind."""
        found: dict[Key, list[str]] = {}
        for resource in _COMPANIONS.values():
            try:
                items = await self._kube.list(
                    resource.path(), label_selector=f"{labels.CLUSTER}={cluster_id}"
                )
            except (ResourceNotFound, Forbidden):
                continue
            for item in items:
                marks = item["metadata"]["labels"]
                attempt = marks.get(labels.ATTEMPT, "")
                if attempt.isdecimal() and not item["metadata"].get("ownerReferences"):
                    key = Key(marks.get(labels.WORKLOAD, ""), int(attempt))
                    path = resource.path(item["metadata"]["namespace"], item["metadata"]["name"])
                    found.setdefault(key, []).append(path)
        return found

    async def delete(self, path: str, *, uid: str = "", grace_seconds: int | None = None) -> None:
        """Deletes an object in the foreground; a missing object is no error."""
        try:
            await self._kube.delete(
                path, propagation="Foreground", uid=uid, grace_seconds=grace_seconds
            )
        except (ResourceNotFound, Conflict):
            # Gone, or another one of that name.
            return


def _root_of(state: AttemptState) -> RootObject | None:
    return state.snapshot.root if state.snapshot is not None else None


def _path(item: Object) -> str:
    resource: Resource = _KINDS[item["kind"]]
    return resource.path(item["metadata"]["namespace"], item["metadata"]["name"])
