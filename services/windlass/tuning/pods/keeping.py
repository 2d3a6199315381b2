"""Keeps the pods of this server: tells their clusters, hears how they are, and ends the lost."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

import grpc

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.api.clusters.v1.clusters_pb2_grpc import ClustersInternalServiceAsyncStub
from windlass.core import telemetry
from windlass.core.clock import now_seconds
from windlass.core.db.leases import tolerated
from windlass.core.errors import NotFound, from_rpc
from windlass.core.rpc.following import Follower
from windlass.tuning.pods.store import DELETED, LEASE_SECONDS, PodStore, Row
from windlass.tuning.pods.workloads import OWNER, PodWorkloads

RENEW_SECONDS = LEASE_SECONDS / 3
# A pod that nobody asks for any more while it waits goes.
ABANDONED_SECONDS = 60.0
QUEUED = "Queued"

log = telemetry.logger("trainer_pods")


@dataclass(eq=False)
class KeptPod:
    """A pod that this server asked for."""

    id: str
    cluster_id: str
    # The one that its row has the digest of.
    token: str
    asked_at: float = field(default_factory=lambda: asyncio.get_running_loop().time())
    # True once a trainer sits on it.
    is_taken: bool = False
    # Set once it does not serve any more, or is to end.
    over: asyncio.Event = field(default_factory=asyncio.Event)


class PodKeeper:
    """Pods of this server, and what clusters say of those of all servers."""

    def __init__(
        self,
        store: PodStore,
        workloads: PodWorkloads,
        clusters: ClustersInternalServiceAsyncStub,
        *,
        url_seconds: float,
    ):
        self._store = store
        self._workloads = workloads
        self._clusters = clusters
        self._url_seconds = url_seconds
        self._pods: dict[str, KeptPod] = {}
        self._statuses: dict[str, pb.WorkloadStatus] = {}
        self._changed = asyncio.Condition()
        self._is_following = False
        self.follower = Follower("trainer pods", self._watch, self._hear)

    async def run(self) -> None:
        """Keeps them until cancelled."""
        self._is_following = True
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.follower.run())
                group.create_task(self._keep())
        finally:
            self._is_following = False

    async def begin(self, row: Row, token: str) -> KeptPod:
        """Has a cluster told of a pod that was just written."""
        pod = self._pods[row.id] = KeptPod(row.id, row.cluster_id, token)
        await self._tell(row)
        return pod

    async def status(self, pod: KeptPod, seconds: float) -> pb.WorkloadStatus:
        """Returns how a pod is, once it serves, has failed or is to end, or after so much time."""

        def is_settled() -> bool:
            phase = self._status(pod.id).phase
            return pod.over.is_set() or phase in (pb.PHASE_RUNNING, pb.PHASE_FAILED)

        try:
            async with asyncio.timeout(seconds), self._changed:
                await self._changed.wait_for(is_settled)
        except TimeoutError:
            pass
        return self._status(pod.id)

    async def end(self, pod: KeptPod) -> None:
        """Has a pod deleted, and all that joined its devices.

        What a cluster cannot be told now, it is told later.
        """
        await self._over(pod)
        await self.ended(await self._store.end(pod.id))

    async def ended(self, rows: Sequence[Row]) -> None:
        """Takes what the rows say that are to end now, and tells clusters."""
        for row in rows:
            if (pod := self._pods.get(row.id)) is not None:
                await self._over(pod)
            await self._tell(row)

    async def gone(self, pod_id: str, seconds: float) -> bool:
        """Waits until nothing of a pod is left that was to end; returns False after so much time.

        A server that hears its clusters no more knows nothing of it, and does not wait.
        """
        try:
            async with asyncio.timeout(seconds), self._changed:
                await self._changed.wait_for(
                    lambda: not self._is_following or pod_id not in self._statuses
                )
        except TimeoutError:
            return False
        return True

    def said(self, pod_id: str) -> pb.WorkloadStatus:
        """The status of a pod, as its cluster said last."""
        return self._status(pod_id)

    def is_there(self, pod_id: str) -> bool:
        """Returns True while something of a pod may be in its cluster."""
        return pod_id in self._statuses

    async def reason(self, project_id: str, operation_id: str) -> str | None:
        """The reason why the pod of an operation does not serve; None where none is asked for."""
        pod_id = await self._store.awaited(project_id, operation_id)
        if pod_id is None:
            return None
        status = self._status(pod_id)
        return "" if status.phase == pb.PHASE_RUNNING else status.message

    def is_wanted(self, cluster_id: str) -> bool:
        """Returns True while a pod waits for quota in a cluster."""
        return any(
            one.cluster_id == cluster_id and one.phase == pb.PHASE_PENDING and one.reason == QUEUED
            for one in self._statuses.values()
        )

    def room_is_wanted(self) -> bool:
        """Returns True if a pod waits for quota where this server holds some."""
        return any(self.is_wanted(one.cluster_id) for one in self._pods.values() if one.is_taken)

    async def _over(self, pod: KeptPod) -> None:
        pod.over.set()
        self._pods.pop(pod.id, None)
        async with self._changed:
            self._changed.notify_all()

    def _status(self, pod_id: str) -> pb.WorkloadStatus:
        return self._statuses.get(pod_id, pb.WorkloadStatus())

    def _watch(self) -> grpc.aio.UnaryStreamCall[pb.WatchStatusRequest, pb.StatusDelta]:
        request = pb.WatchStatusRequest(owner=OWNER)
        return self._clusters.WatchStatus(request, wait_for_ready=True)

    async def _hear(self, delta: pb.StatusDelta) -> None:
        if delta.snapshot:
            self._statuses = {}
        for status in delta.statuses:
            if status.phase == pb.PHASE_STOPPED:
                self._statuses.pop(status.workload_id, None)
            else:
                self._statuses[status.workload_id] = status
            pod = self._pods.get(status.workload_id)
            if pod is not None and pod.is_taken and status.phase != pb.PHASE_RUNNING:
                log.warning("trainer_pod_lost", pod=pod.id, reason=status.reason)
                pod.over.set()
        async with self._changed:
            self._changed.notify_all()

    async def _keep(self) -> None:
        while True:
            async with tolerated("tuning.pods"):
                # First one's own: a process that stood still has not died.
                await self._store.renew()
                await self._store.end_orphans()
                await self._store.refresh(int(now_seconds() - self._url_seconds))
                await self._abandon()
                for row in await self._store.untold():
                    await self._tell(row)
            await asyncio.sleep(RENEW_SECONDS)

    async def _abandon(self) -> None:
        before = asyncio.get_running_loop().time() - ABANDONED_SECONDS
        for pod in tuple(self._pods.values()):
            if not pod.is_taken and pod.asked_at < before:
                await self.end(pod)

    async def _tell(self, row: Row) -> None:
        """Tells a cluster what a pod should be; what fails is tried again by the loop."""
        try:
            workload = await self._workloads.make(row)
            await self._clusters.PutWorkload(pb.PutWorkloadRequest(workload=workload))
        except grpc.aio.AioRpcError as error:
            refusal = from_rpc(error)
            log.warning("trainer_pod_not_told", pod=row.id, error=refusal.message)
            # A cluster that is unregistered has none of it.
            if not (row.desired == DELETED and isinstance(refusal, NotFound)):
                return
        await self._store.mark_told(row)
