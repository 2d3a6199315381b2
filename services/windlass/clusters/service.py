"""Clusters as operators see them: who they are, what they have, whose they may be."""

from typing import Any

import grpc

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.api.clusters.v1 import clusters_pb2_grpc as rpc
from windlass.api.users.v1 import users_pb2, users_pb2_grpc
from windlass.clusters import domain, messages
from windlass.clusters.stores import Stores
from windlass.core.auth import current, digest, new_secret
from windlass.core.errors import FailedPrecondition
from windlass.core.wake import Wake

Context = grpc.aio.ServicerContext[Any, Any]


class ClustersServicer(rpc.ClustersServiceServicer):
    """Clusters belong to the platform: permissions decide, not tenants."""

    def __init__(
        self, stores: Stores, users: users_pb2_grpc.UsersInternalServiceAsyncStub, wake: Wake
    ):
        self._stores = stores
        self._users = users
        self._wake = wake

    async def RegisterCluster(
        self, request: pb.RegisterClusterRequest, context: Context
    ) -> pb.RegisterClusterResponse:
        """A new cluster and its registration key, valid once within an hour."""
        key = new_secret(domain.REGISTRATION_PREFIX)
        name = domain.check_name(request.name)
        cluster_id = await self._stores.credentials.register(name, digest(key))
        return await self._with_key(cluster_id, key)

    async def RekeyCluster(
        self, request: pb.RekeyClusterRequest, context: Context
    ) -> pb.RegisterClusterResponse:
        """A further key; the agent that runs loses its place when another has used it."""
        key = new_secret(domain.REGISTRATION_PREFIX)
        await self._stores.credentials.rekey(request.cluster_id, digest(key))
        return await self._with_key(request.cluster_id, key)

    async def _with_key(self, cluster_id: str, key: str) -> pb.RegisterClusterResponse:
        found = await self._stores.clusters.cluster(cluster_id)
        return pb.RegisterClusterResponse(cluster=messages.cluster(found), registration_key=key)

    async def ListClusters(
        self, request: pb.ListClustersRequest, context: Context
    ) -> pb.ListClustersResponse:
        """All clusters by name."""
        found = await self._stores.clusters.clusters()
        return pb.ListClustersResponse(clusters=map(messages.cluster, found))

    async def GetCluster(self, request: pb.GetClusterRequest, context: Context) -> pb.Cluster:
        """One cluster."""
        return messages.cluster(await self._stores.clusters.cluster(request.cluster_id))

    async def GetInventory(self, request: pb.GetInventoryRequest, context: Context) -> pb.Inventory:
        """What it has: of all tenants, so for the platform's administrators."""
        return await self._stores.inventory.inventory(request.cluster_id)

    async def PutAssignment(
        self, request: pb.PutAssignmentRequest, context: Context
    ) -> pb.Assignment:
        """Lets a project, which must be there, use a cluster."""
        wanted = domain.checked_assignment(request.assignment)
        project = await self._users.LookupProject(
            users_pb2.LookupProjectRequest(project_id=wanted.project_id)
        )
        if project.archived_at:
            raise FailedPrecondition("The project is archived.", param="project_id")
        wanted.organization_id = project.organization_id
        await self._stores.assignments.put(wanted)
        self._wake.touch(domain.cluster_topic(wanted.cluster_id))
        return await self._stores.assignments.get(wanted.cluster_id, wanted.project_id)

    async def ListAssignments(
        self, request: pb.ListAssignmentsRequest, context: Context
    ) -> pb.ListAssignmentsResponse:
        """Of all projects for the platform's administrators, of their own for others."""
        scope = {"project_id": request.project_id}
        caller = current()
        if not caller.may("platform.read"):
            own = caller.require_project()
            if request.project_id not in ("", own):
                return pb.ListAssignmentsResponse()
            scope = {"project_id": own, "organization_id": caller.organization_id}
        found = await self._stores.assignments.all(cluster_id=request.cluster_id, **scope)
        return pb.ListAssignmentsResponse(assignments=found)

    async def DeleteAssignment(
        self, request: pb.DeleteAssignmentRequest, context: Context
    ) -> pb.DeleteAssignmentResponse:
        """Places no more of the project there; the rest goes when its last job has ended."""
        await self._stores.assignments.delete(request.cluster_id, request.project_id)
        self._wake.touch(domain.cluster_topic(request.cluster_id))
        return pb.DeleteAssignmentResponse()

    async def GetQuota(self, request: pb.GetQuotaRequest, context: Context) -> pb.Quota:
        """What is managed, and what is there."""
        return await self._stores.quotas.quota(request.cluster_id)

    async def PutQuota(self, request: pb.PutQuotaRequest, context: Context) -> pb.Quota:
        """Changes what is managed; the agent brings it about."""
        await self._stores.quotas.put(request)
        self._wake.touch(domain.cluster_topic(request.cluster_id))
        return await self._stores.quotas.quota(request.cluster_id)

    async def UnregisterCluster(
        self, request: pb.UnregisterClusterRequest, context: Context
    ) -> pb.UnregisterClusterResponse:
        """Revokes the agent's credential and ends its streams."""
        owners = await self._stores.workloads.unregister(request.cluster_id)
        self._wake.touch(domain.cluster_topic(request.cluster_id))
        for owner in owners:
            self._wake.touch(domain.status_topic(owner))
        return pb.UnregisterClusterResponse()
