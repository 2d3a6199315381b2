"""Clusters as operators see them, and as the services that own workloads do."""

from collections.abc import AsyncIterator
from typing import Any

import grpc

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.api.clusters.v1 import clusters_pb2_grpc as rpc
from windlass.clusters import domain, messages
from windlass.clusters.arrivals import Arrivals
from windlass.clusters.store import ClusterStore
from windlass.clusters.watching import follow
from windlass.clusters.workloads import WorkloadStore
from windlass.core.auth import digest, new_secret
from windlass.core.wake import Wake

REGISTRATION_PREFIX = "wlr-"
CREDENTIAL_PREFIX = "wla-"
STATUS_POLL_SECONDS = 2.0

Context = grpc.aio.ServicerContext[Any, Any]


class ClustersServicer(rpc.ClustersServiceServicer):
    """Clusters belong to the platform: permissions decide, not tenants."""

    def __init__(self, clusters: ClusterStore, workloads: WorkloadStore, wake: Wake):
        self._clusters = clusters
        self._workloads = workloads
        self._wake = wake

    async def RegisterCluster(
        self, request: pb.RegisterClusterRequest, context: Context
    ) -> pb.RegisterClusterResponse:
        """A new cluster and its registration key, valid once within an hour."""
        key = new_secret(REGISTRATION_PREFIX)
        cluster_id = await self._clusters.register(domain.check_name(request.name), digest(key))
        found = await self._clusters.cluster(cluster_id)
        return pb.RegisterClusterResponse(cluster=messages.cluster(found), registration_key=key)

    async def ListClusters(
        self, request: pb.ListClustersRequest, context: Context
    ) -> pb.ListClustersResponse:
        """All clusters by name."""
        found = await self._clusters.clusters()
        return pb.ListClustersResponse(clusters=map(messages.cluster, found))

    async def GetCluster(self, request: pb.GetClusterRequest, context: Context) -> pb.Cluster:
        """One cluster."""
        return messages.cluster(await self._clusters.cluster(request.cluster_id))

    async def UnregisterCluster(
        self, request: pb.UnregisterClusterRequest, context: Context
    ) -> pb.UnregisterClusterResponse:
        """Revokes the agent's credential and ends its streams."""
        owners = await self._workloads.unregister(request.cluster_id)
        self._wake.touch(domain.cluster_topic(request.cluster_id))
        for owner in owners:
            self._wake.touch(domain.status_topic(owner))
        return pb.UnregisterClusterResponse()


class ClustersInternalServicer(rpc.ClustersInternalServiceServicer):
    """Placement and status, for jobs, inference and whoever owns workloads."""

    def __init__(
        self, clusters: ClusterStore, workloads: WorkloadStore, arrivals: Arrivals, wake: Wake
    ):
        self._clusters = clusters
        self._workloads = workloads
        self._arrivals = arrivals
        self._wake = wake

    async def AuthenticateAgent(
        self, request: pb.AuthenticateAgentRequest, context: Context
    ) -> pb.AuthenticateAgentResponse:
        """Whose credential this is."""
        cluster_id, name = await self._clusters.authenticate(request.digest)
        return pb.AuthenticateAgentResponse(cluster_id=cluster_id, name=name)

    async def EnrollLocal(
        self, request: pb.EnrollLocalRequest, context: Context
    ) -> pb.EnrollResponse:
        """A cluster for the agent inside a server."""
        credential = new_secret(CREDENTIAL_PREFIX)
        name = domain.check_name(request.name)
        cluster_id = await self._clusters.enroll_local(name, digest(credential))
        return pb.EnrollResponse(cluster_id=cluster_id, credential=credential)

    async def ListCapacity(
        self, request: pb.ListCapacityRequest, context: Context
    ) -> pb.ListCapacityResponse:
        """Clusters whose agent was heard of lately."""
        found = await self._clusters.clusters(live_only=True)
        return pb.ListCapacityResponse(clusters=map(messages.cluster, found))

    async def PutWorkload(
        self, request: pb.PutWorkloadRequest, context: Context
    ) -> pb.PutWorkloadResponse:
        """Says what a cluster should run."""
        workload = domain.check_workload(request.workload)
        revision, touched = await self._arrivals.put(workload)
        for cluster_id in touched:
            self._wake.touch(domain.cluster_topic(cluster_id))
        return pb.PutWorkloadResponse(revision=revision)

    async def WatchStatus(
        self, request: pb.WatchStatusRequest, context: Context
    ) -> AsyncIterator[pb.StatusDelta]:
        """Statuses of an owner's workloads for as long as the caller listens."""
        owner = domain.check_identifier(request.owner, "owner")
        topic = domain.status_topic(owner)
        async for change, snapshot in follow(
            self._wake,
            topic,
            lambda after: self._workloads.statuses(owner, after),
            poll=STATUS_POLL_SECONDS,
        ):
            yield messages.status_delta(change, snapshot=snapshot)
