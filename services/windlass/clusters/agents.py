"""What agents ask: enrolment, the watch of their cluster, liveness and status."""

from collections.abc import AsyncIterator
from typing import Any

import grpc

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.api.clusters.v1 import clusters_pb2_grpc as rpc
from windlass.clusters import domain, messages
from windlass.clusters.domain import Change
from windlass.clusters.service import CREDENTIAL_PREFIX
from windlass.clusters.store import ClusterStore
from windlass.clusters.watching import follow
from windlass.clusters.workloads import WorkloadStore
from windlass.core.auth import current_agent, digest, new_secret
from windlass.core.errors import InvalidArgument
from windlass.core.wake import Wake

# A stream must end within a second of UnregisterCluster even when no wake-up arrives.
POLL_SECONDS = 0.7
MOST_STATUSES = 1000
MOST_CAPACITY_BYTES = 64 * 1024

Context = grpc.aio.ServicerContext[Any, Any]


class ClustersAgentServicer(rpc.ClustersAgentServiceServicer):
    """Each call concerns the cluster of the credential alone."""

    def __init__(self, clusters: ClusterStore, workloads: WorkloadStore, wake: Wake):
        self._clusters = clusters
        self._workloads = workloads
        self._wake = wake

    async def Enroll(self, request: pb.EnrollRequest, context: Context) -> pb.EnrollResponse:
        """Exchanges a registration key, once, for a credential."""
        credential = new_secret(CREDENTIAL_PREFIX)
        cluster_id = await self._clusters.enroll(
            digest(request.registration_key), digest(credential)
        )
        return pb.EnrollResponse(cluster_id=cluster_id, credential=credential)

    async def Watch(
        self, request: pb.WatchRequest, context: Context
    ) -> AsyncIterator[pb.WorkloadsDelta]:
        """Takes the cluster over, then says what it should run, for ever."""
        cluster_id = current_agent().cluster_id
        session_id = domain.check_identifier(request.session_id, "session_id")
        topic = domain.cluster_topic(cluster_id)
        await self._clusters.take_over(
            cluster_id,
            session_id,
            agent_version=request.agent_version[:64],
            executor=request.executor[:64],
        )
        # The stream of the session before, if any, looks and ends.
        self._wake.touch(topic)

        async def read(after: int) -> Change:
            return await self._workloads.changes(cluster_id, session_id, after)

        async for change, snapshot in follow(self._wake, topic, read, poll=POLL_SECONDS):
            delta = messages.workloads_delta(change, snapshot=snapshot)
            delta.heartbeat_seconds = domain.HEARTBEAT_SECONDS
            yield delta

    async def Heartbeat(
        self, request: pb.HeartbeatRequest, context: Context
    ) -> pb.HeartbeatResponse:
        """Notes that the agent lives, and what it has."""
        capacity = request.capacity.SerializeToString()
        if len(capacity) > MOST_CAPACITY_BYTES:
            raise InvalidArgument("The capacity is too large.", param="capacity")
        current = await self._clusters.heartbeat(
            current_agent().cluster_id, request.session_id, capacity
        )
        return pb.HeartbeatResponse(current=current)

    async def ReportStatus(
        self, request: pb.ReportStatusRequest, context: Context
    ) -> pb.ReportStatusResponse:
        """Stores what workloads do."""
        if len(request.statuses) > MOST_STATUSES:
            raise InvalidArgument(f"At most {MOST_STATUSES} statuses at once.", param="statuses")
        owners = await self._workloads.report(
            current_agent().cluster_id, request.session_id, request.statuses
        )
        for owner in owners:
            self._wake.touch(domain.status_topic(owner))
        return pb.ReportStatusResponse()
