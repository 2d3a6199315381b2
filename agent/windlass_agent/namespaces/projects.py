"""Sets up the namespace of a project, and takes it down."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.kubernetes.names import BadName
from windlass_agent.inventory.informers import ClusterInformers
from windlass_agent.kube import Kube, KubeError, ResourceNotFound
from windlass_agent.kube.resources import (
    DEPLOYMENTS,
    JOBS,
    JOBSETS,
    LOCALQUEUES,
    NAMESPACES,
    NETWORKPOLICIES,
    ROLEBINDINGS,
    SERVICEACCOUNTS,
    TRAINJOBS,
    Resource,
)
from windlass_agent.namespaces import manifests, ownership
from windlass_agent.namespaces.drift import signed
from windlass_agent.namespaces.managed_objects import ManagedObjects
from windlass_agent.namespaces.manifests import AGENT_BINDING, EDITOR, VIEWER, ManifestContext
from windlass_agent.namespaces.sentences import AssignmentRefused, sentence

Object = dict[str, Any]
# Until the API server knows of a RoleBinding that it took.
GRANT_SECONDS = 5.0
_ENDS = frozenset({"Complete", "Completed", "Failed"})


class ProjectNamespaces:
    """Brings single assignments about."""

    def __init__(
        self,
        kube: Kube,
        managed: ManagedObjects,
        informers: ClusterInformers,
        context: ManifestContext,
    ):
        self._kube = kube
        self._managed = managed
        self._informers = informers
        self._context = context

    async def set_up(self, assignment: pb.Assignment) -> None:
        """Makes what is not there, mends what differs; raises AssignmentRefused."""
        ownership.check_name(assignment.namespace, self._context.namespace)
        try:
            await self._claim(assignment)
            patience_seconds = 0.0
            for item in manifests.contents(assignment, self._context):
                if await self._managed.settle(item, patience_seconds=patience_seconds):
                    patience_seconds = GRANT_SECONDS
        except BadName as error:
            raise AssignmentRefused(str(error)) from error
        for queue in self._left(assignment):
            await self._managed.delete(LOCALQUEUES, queue)

    def has(self, assignment: pb.Assignment) -> bool:
        """Returns True if the namespace is there and this project's."""
        actual = self._managed.find(NAMESPACES, assignment.namespace)
        return actual is not None and ownership.is_ours(assignment, actual)

    async def take_down(self, assignment: pb.Assignment) -> None:
        """Deletes what we made in a namespace; raises AssignmentRefused while something is left."""
        name = assignment.namespace
        actual = self._managed.find(NAMESPACES, name)
        if actual is None or not ownership.is_ours(assignment, actual):
            return
        if actual["metadata"].get("deletionTimestamp"):
            raise AssignmentRefused(f"Namespace {name} is being deleted.")
        for account in (VIEWER, EDITOR):
            if binding := self._managed.find(ROLEBINDINGS, account, name):
                await self._managed.delete(ROLEBINDINGS, binding)
        if holds := await self._live(name):
            raise AssignmentRefused(f"Namespace {name} is deleted once {holds} has ended.")
        if ownership.is_made(actual):
            await self._managed.delete(NAMESPACES, actual)
            raise AssignmentRefused(f"Namespace {name} is being deleted.")
        await self._empty(name)
        await self._managed.settle(manifests.released(name))

    async def _claim(self, assignment: pb.Assignment) -> None:
        actual = self._managed.find(NAMESPACES, assignment.namespace)
        if actual is None:
            actual = await self._foreign(assignment.namespace)
        if actual is None:
            _, body = manifests.namespace(assignment, made=True)
            try:
                # Not applied: that would take over what somebody else makes just now.
                await self._kube.create(NAMESPACES.path(), signed(body))
            except KubeError as error:
                raise AssignmentRefused(
                    sentence(error, NAMESPACES, assignment.namespace)
                ) from error
        else:
            made = ownership.made_by_us(assignment, actual)
            await self._managed.settle(manifests.namespace(assignment, made=made))

    async def _foreign(self, name: str) -> Object | None:
        """A namespace that is no project's yet."""
        try:
            with suppress(ResourceNotFound):
                return await self._kube.get(NAMESPACES.path(name=name))
        except KubeError as error:
            raise AssignmentRefused(sentence(error, NAMESPACES, name)) from error
        return None

    def _left(self, assignment: pb.Assignment) -> Iterator[Object]:
        """LocalQueues that we made for the project before, and that nobody uses any more."""
        for queue in self._managed.all(LOCALQUEUES, assignment.namespace):
            name, status = queue["metadata"]["name"], queue.get("status") or {}
            counts = ("pendingWorkloads", "reservingWorkloads", "admittedWorkloads")
            if (
                name != assignment.local_queue
                and ownership.is_made(queue)
                and ownership.is_ours(assignment, queue)
                and not any(status.get(count) for count in counts)
            ):
                yield queue

    async def _live(self, namespace: str) -> str:
        """Returns the name of something that still runs or waits there; empty when nothing does."""
        if not self._informers.sees_pods():
            raise AssignmentRefused(
                f"The agent may not list pods, so namespace {namespace} is kept."
            )
        for key in self._informers.pods.items:
            if key.startswith(f"{namespace}/"):
                return f"pod {key.partition('/')[2]}"
        for resource in (TRAINJOBS, JOBSETS, JOBS, DEPLOYMENTS):
            for item in await self._list(resource, namespace):
                if not _ended(item):
                    return f"{resource.kind} {item['metadata']['name']}"
        return ""

    async def _list(self, resource: Resource, namespace: str) -> list[Object]:
        try:
            return await self._kube.list(resource.path(namespace))
        except ResourceNotFound:
            return []
        except KubeError as error:
            raise AssignmentRefused(sentence(error, resource, f"list in {namespace}")) from error

    async def _empty(self, namespace: str) -> None:
        """Removes what is ours in a namespace that is not; last, our right to do so."""
        for resource in (LOCALQUEUES, NETWORKPOLICIES, SERVICEACCOUNTS, ROLEBINDINGS):
            for item in self._managed.all(resource, namespace):
                if ownership.is_made(item) and item["metadata"]["name"] != AGENT_BINDING:
                    await self._managed.delete(resource, item)
        if binding := self._managed.find(ROLEBINDINGS, AGENT_BINDING, namespace):
            await self._managed.delete(ROLEBINDINGS, binding)


def _ended(item: Object) -> bool:
    conditions = (item.get("status") or {}).get("conditions") or ()
    return any(one["type"] in _ENDS and one["status"] == "True" for one in conditions)
