"""RPCs for operators: registration, policy, inventory and assignments of clusters."""

from dataclasses import asdict
from typing import Any

import grpc

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.api.clusters.v1 import clusters_pb2_grpc as rpc
from windlass.api.users.v1 import users_pb2, users_pb2_grpc
from windlass.clusters.domain import policy, records
from windlass.clusters.domain.policy import OperatorPolicy
from windlass.clusters.domain.records import Cluster
from windlass.clusters.relabelling import Relabelling
from windlass.clusters.storage.specs import unknown_cluster
from windlass.clusters.storage.stores import Stores
from windlass.clusters.transport import messages
from windlass.core.db.paging import fitting, page_of
from windlass.core.db.wake import Wake
from windlass.core.errors import FailedPrecondition
from windlass.core.ids import EVERYONE
from windlass.core.rpc import audited
from windlass.core.rpc.auth import current, digest, new_secret
from windlass.policy import ALL_PROJECTS

Context = grpc.aio.ServicerContext[Any, Any]


def _is_shared(cluster: Cluster) -> bool:
    """Returns True if every project may use it, assigned or not."""
    return cluster.policy.shared


class ClustersServicer(rpc.ClustersServiceServicer):
    """Clusters belong to the platform: permissions decide, not tenants."""

    def __init__(
        self,
        stores: Stores,
        users: users_pb2_grpc.UsersInternalServiceAsyncStub,
        relabelling: Relabelling,
        wake: Wake,
    ):
        self._stores = stores
        self._relabelling = relabelling
        self._users = users
        self._wake = wake

    async def RegisterCluster(
        self, request: pb.RegisterClusterRequest, context: Context
    ) -> pb.RegisterClusterResponse:
        """A new cluster and its registration key, valid once within an hour."""
        key = new_secret(records.REGISTRATION_PREFIX)
        name, decided = records.check_name(request.name), policy.registered(request.policy)
        cluster_id = await self._stores.credentials.register(name, decided, digest(key))
        audited.change(None, {"name": name, **asdict(decided)}, resource=cluster_id)
        return await self._with_key(cluster_id, key)

    async def UpdateCluster(self, request: pb.UpdateClusterRequest, context: Context) -> pb.Cluster:
        """Changes the policy; the executor only while no agent is running.

        With another geography, what may not be there any more has ended or moves.
        """

        def change(found: Cluster) -> OperatorPolicy:
            decided = policy.changed(found.policy, request.policy, request.fields)
            if decided.executor != found.policy.executor and found.live:
                raise FailedPrecondition(
                    "The cluster's agent is running; stop it first.",
                    reason="cluster_live",
                    param="executor",
                )
            return decided

        await self._stores.clusters.decide(request.cluster_id, change)
        if "geography" in request.fields:
            # For another process, should this call be cut off.
            self._wake.touch(records.WAKE_RELABELLED)
            await self._relabelling.once()
        return messages.cluster(await self._stores.clusters.cluster(request.cluster_id))

    async def RekeyCluster(
        self, request: pb.RekeyClusterRequest, context: Context
    ) -> pb.RegisterClusterResponse:
        """Issues a further key; an agent that uses it replaces the running one."""
        key = new_secret(records.REGISTRATION_PREFIX)
        await self._stores.credentials.rekey(request.cluster_id, digest(key))
        return await self._with_key(request.cluster_id, key)

    async def _with_key(self, cluster_id: str, key: str) -> pb.RegisterClusterResponse:
        found = await self._stores.clusters.cluster(cluster_id)
        return pb.RegisterClusterResponse(cluster=messages.cluster(found), registration_key=key)

    async def ListClusters(
        self, request: pb.ListClustersRequest, context: Context
    ) -> pb.ListClustersResponse:
        """Newest first: all for the platform's administrators, for others those they may use."""
        found = await self._stores.clusters.clusters()
        assigned = await self._assigned()
        if assigned is not None:
            found = [one for one in found if _is_shared(one) or one.id in assigned]
        page, more = page_of(found, lambda one: one.id, after=request.after, limit=request.limit)
        told = (messages.cluster(one, with_models=assigned is None) for one in page)
        fit, more = fitting(told, more)
        return pb.ListClustersResponse(clusters=fit, has_more=more)

    async def GetCluster(self, request: pb.GetClusterRequest, context: Context) -> pb.Cluster:
        """Returns one cluster that the caller may see."""
        assigned = await self._assigned()
        found = await self._stores.clusters.cluster(request.cluster_id)
        if assigned is not None and not _is_shared(found) and found.id not in assigned:
            raise unknown_cluster(request.cluster_id)
        return messages.cluster(found, with_models=assigned is None)

    async def _assigned(self) -> set[str] | None:
        """The clusters that the caller's projects are assigned to; None for every one."""
        caller = current()
        if caller.may("platform.read"):
            return None
        in_project = not caller.may(ALL_PROJECTS)
        if in_project and not caller.project_id:
            return set()
        found = await self._stores.assignments.all(
            organization_id=caller.organization_id,
            project_id=caller.project_id if in_project else "",
        )
        return {one.cluster_id for one in found}

    async def GetInventory(self, request: pb.GetInventoryRequest, context: Context) -> pb.Inventory:
        """The inventory of a cluster, of all tenants, so for the platform's administrators."""
        return await self._stores.inventory.inventory(request.cluster_id)

    async def PutAssignment(
        self, request: pb.PutAssignmentRequest, context: Context
    ) -> pb.Assignment:
        """Lets a project, which must be there, use a cluster; or engines of models for everyone."""
        wanted = records.checked_assignment(request.assignment)
        geography = ""
        if wanted.project_id != EVERYONE:
            project = await self._live_project(wanted.project_id)
            wanted.organization_id, geography = project.organization_id, project.geography
        await self._stores.assignments.put(wanted, geography)
        self._wake.touch(records.cluster_topic(wanted.cluster_id))
        return await self._stores.assignments.get(wanted.cluster_id, wanted.project_id)

    async def _live_project(self, project_id: str) -> users_pb2.Project:
        """Raises NotFound, or FailedPrecondition for an archived project."""
        request = users_pb2.LookupProjectRequest(project_id=project_id)
        project = await self._users.LookupProject(request)
        if project.archived_at:
            raise FailedPrecondition("The project is archived.", param="project_id")
        return project

    async def ListAssignments(
        self, request: pb.ListAssignmentsRequest, context: Context
    ) -> pb.ListAssignmentsResponse:
        """Returns all assignments to the platform's administrators, their own to others."""
        scope = {"project_id": request.project_id}
        caller = current()
        if not caller.may("platform.read"):
            own = caller.require_project()
            if request.project_id not in ("", own):
                return pb.ListAssignmentsResponse()
            scope = {"project_id": own, "organization_id": caller.organization_id}
        found = await self._stores.assignments.all(cluster_id=request.cluster_id, **scope)
        page, more = page_of(
            found,
            lambda one: f"{one.cluster_id}/{one.project_id}",
            after=request.after,
            limit=request.limit,
        )
        fit, more = fitting(page, more)
        return pb.ListAssignmentsResponse(assignments=fit, has_more=more)

    async def DeleteAssignment(
        self, request: pb.DeleteAssignmentRequest, context: Context
    ) -> pb.DeleteAssignmentResponse:
        """Places no more of the project there; the rest goes when its last job has ended."""
        await self._stores.assignments.delete(request.cluster_id, request.project_id)
        for topic in (records.cluster_topic(request.cluster_id), records.WAKE_DRAINING):
            self._wake.touch(topic)
        return pb.DeleteAssignmentResponse()

    async def GetQuota(self, request: pb.GetQuotaRequest, context: Context) -> pb.Quota:
        """The quota that is managed, and its present use."""
        return await self._stores.quotas.quota(request.cluster_id)

    async def PutQuota(self, request: pb.PutQuotaRequest, context: Context) -> pb.Quota:
        """Changes what is managed; the agent brings it about."""
        await self._stores.quotas.put(request)
        self._wake.touch(records.cluster_topic(request.cluster_id))
        return await self._stores.quotas.quota(request.cluster_id)

    async def UnregisterCluster(
        self, request: pb.UnregisterClusterRequest, context: Context
    ) -> pb.UnregisterClusterResponse:
        """Revokes the agent's credential and ends its streams."""
        owners = await self._stores.workloads.unregister(request.cluster_id)
        self._wake.touch(records.cluster_topic(request.cluster_id))
        for owner in owners:
            self._wake.touch(records.status_topic(owner))
        return pb.UnregisterClusterResponse()
