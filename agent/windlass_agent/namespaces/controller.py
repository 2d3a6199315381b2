"""Brings the cluster's spec about, again and again, and says how far it is."""

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.core import telemetry
from windlass.core.backoff import doubled
from windlass_agent.inventory.informers import ClusterInformers
from windlass_agent.kube import Kube
from windlass_agent.namespaces.managed_objects import ManagedObjects
from windlass_agent.namespaces.manifests import EDITOR, VIEWER, ManifestContext
from windlass_agent.namespaces.projects import ProjectNamespaces
from windlass_agent.namespaces.quotas import KueueQuotas
from windlass_agent.namespaces.sentences import LONGEST, AssignmentRefused

# Even when nothing says that something differs.
AGAIN_SECONDS = 180.0
COALESCE_SECONDS = 0.3
# With many projects the agent spends at most a tenth of its time on comparing.
REST_PER_LOOK = 10.0
LONGEST_REST_SECONDS = 5.0
RETRY_SECONDS = 2.0
MAX_RETRY_SECONDS = 60.0

log = telemetry.logger("namespaces")


@dataclass(frozen=True)
class Accounts:
    """Users that the tunnel may act as in a namespace, by their names in Kubernetes."""

    viewer: str
    editor: str


class NamespaceController:
    """Projects' namespaces and the quota of one cluster.

    `take` says what should be, `touch` that what is may differ; `run` does the rest.
    """

    def __init__(
        self,
        kube: Kube,
        informers: ClusterInformers,
        context: ManifestContext,
        changed: Callable[[], None],
    ):
        self._managed = ManagedObjects(kube, informers, self.touch)
        self._projects = ProjectNamespaces(kube, self._managed, informers, context)
        self._quotas = KueueQuotas(self._managed)
        self._informers = informers
        self._changed = changed
        self._wake = asyncio.Event()
        self._spec: pb.ClusterSpec | None = None
        self._status = pb.SpecStatus()

    def take(self, spec: pb.ClusterSpec) -> None:
        """Takes the desired state from now on."""
        self._spec = spec
        self._wake.set()

    def touch(self) -> None:
        """Wakes the controller: something in the cluster changed."""
        self._wake.set()

    def status(self) -> pb.SpecStatus:
        """The status of the named spec: what could not be brought about."""
        return self._status

    def has(self, namespace: str) -> bool:
        """Returns True if a namespace is a project's; not before it is there and ours."""
        assignments = self._spec.assignments if self._spec else ()
        return any(one.namespace == namespace and self._projects.has(one) for one in assignments)

    def accounts(self, namespace: str) -> Accounts | None:
        """The accounts of a project's namespace; None for any other."""
        if not self.has(namespace):
            return None
        user = f"system:serviceaccount:{namespace}:"
        return Accounts(viewer=user + VIEWER, editor=user + EDITOR)

    async def run(self) -> None:
        """Runs until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._managed.run())
            group.create_task(self._follow())

    async def _follow(self) -> None:
        failed = 0
        while True:
            began = time.perf_counter()
            self._wake.clear()
            failed = 0 if await self._look() else failed + 1
            rest = max(COALESCE_SECONDS, REST_PER_LOOK * (time.perf_counter() - began))
            await asyncio.sleep(min(rest, LONGEST_REST_SECONDS))
            again = AGAIN_SECONDS
            if failed:
                again = doubled(RETRY_SECONDS, failed - 1, longest=MAX_RETRY_SECONDS)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(again):
                    await self._wake.wait()

    async def _look(self) -> bool:
        """Returns True if all is as it should be, or nobody has said yet how it should be."""
        spec = self._spec
        if spec is None:
            return True
        if not (self._managed.settled() and self._informers.settled()):
            return False
        await self._bring_about(spec)
        return not (self._status.assignment_errors or self._status.quota_error)

    async def _bring_about(self, spec: pb.ClusterSpec) -> None:
        errors: dict[str, str] = {}
        for removed in spec.removed:
            try:
                await self._projects.take_down(removed)
            except AssignmentRefused as error:
                errors[removed.project_id] = str(error)
        for assignment in spec.assignments:
            try:
                await self._projects.set_up(assignment)
            except AssignmentRefused as error:
                errors[assignment.project_id] = str(error)
        problems = []
        if spec.HasField("quota"):
            problems = await self._settle_quota(spec)
        status = pb.SpecStatus(
            revision=spec.revision,
            assignment_errors=errors,
            quota_error=" ".join(problems)[: 4 * LONGEST],
        )
        if status != self._status:
            log.info("cluster_spec_applied", revision=spec.revision, errors=errors, quota=problems)
            self._status = status
            self._changed()

    async def _settle_quota(self, spec: pb.ClusterSpec) -> list[str]:
        if self._informers.has_kueue():
            return await self._quotas.settle(spec.quota, spec.cluster_id)
        wanted = spec.quota.ByteSize() > 0
        return (
            ["Kueue is not installed in the cluster, or the agent may not read it."]
            if wanted
            else []
        )
