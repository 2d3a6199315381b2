"""RPCs for the services that own workloads."""

from collections.abc import AsyncIterator
from typing import Any

import grpc

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.api.clusters.v1 import clusters_pb2_grpc as rpc
from windlass.clusters.domain import policy, records
from windlass.clusters.domain.policy import OperatorPolicy
from windlass.clusters.domain.records import Cluster
from windlass.clusters.storage.stores import Stores
from windlass.clusters.storage.workload_inserts import WorkloadInserts
from windlass.clusters.transport import messages
from windlass.clusters.transport.watch_loop import follow
from windlass.core.db.paging import stream_pages
from windlass.core.db.wake import Wake
from windlass.core.killpoints import reach
from windlass.core.rpc.auth import digest, new_secret
from windlass.core.rpc.following import BEAT_SECONDS, LOOK_SECONDS
from windlass.residency.geographies import ProjectGeographies

Context = grpc.aio.ServicerContext[Any, Any]


def _is_shared_away(cluster: Cluster) -> bool:
    """True if every project may use a cluster for jobs, whose agent is not heard."""
    return not cluster.live and cluster.policy.shared and policy.JOBS in cluster.policy.roles


class ClustersInternalServicer(rpc.ClustersInternalServiceServicer):
    """Placement and status, for jobs, inference and other owners of workloads."""

    def __init__(
        self, stores: Stores, inserts: WorkloadInserts, geographies: ProjectGeographies, wake: Wake
    ):
        self._stores = stores
        self._geographies = geographies
        self._inserts = inserts
        self._wake = wake

    async def AuthenticateAgent(
        self, request: pb.AuthenticateAgentRequest, context: Context
    ) -> pb.AuthenticateAgentResponse:
        """Returns the cluster that a credential belongs to."""
        holder = await self._stores.credentials.authenticate(request.digest)
        return pb.AuthenticateAgentResponse(
            cluster_id=holder.cluster_id, name=holder.name, expires_at=holder.expires_at
        )

    async def FindEndedCredentials(
        self, request: pb.FindEndedCredentialsRequest, context: Context
    ) -> pb.FindEndedCredentialsResponse:
        """The credentials that are not good, and why."""
        found = await self._stores.credentials.ended(request.digests)
        ended = [
            pb.EndedCredential(digest=digest, reason=error.reason, message=error.message)
            for digest, error in found.items()
        ]
        return pb.FindEndedCredentialsResponse(ended=ended)

    async def EnrollLocal(
        self, request: pb.EnrollLocalRequest, context: Context
    ) -> pb.EnrollResponse:
        """Registers the cluster of the agent inside a server, or records its new place."""
        credentials, folder = self._stores.credentials, request.run_folder
        if request.credential_digest:
            cluster_id = await credentials.note_run_folder(request.credential_digest, folder)
            return pb.EnrollResponse(cluster_id=cluster_id)
        credential = new_secret(records.CREDENTIAL_PREFIX)
        name, executor = records.check_name(request.name), request.executor or policy.PROCESS
        decided = OperatorPolicy(executor, shared=executor == policy.PROCESS, run_folder=folder)
        issued = await credentials.enroll_local(name, decided, digest(credential))
        return messages.enrolled(issued, credential)

    async def ListCapacity(
        self, request: pb.ListCapacityRequest, context: Context
    ) -> AsyncIterator[pb.ListCapacityResponse]:
        """Live clusters with their queues, all assignments, and the projects of a geography."""
        known = await self._stores.clusters.clusters()
        # By name, in which refusals list them.
        found = sorted((one for one in known if one.live), key=lambda one: one.name)
        ids = [one.id for one in found if one.policy.executor != policy.PROCESS]
        queues = await self._stores.inventory.queues(ids) if ids else {}
        assignments = await self._stores.assignments.in_force()
        # Asked last: what is not among these is of a project that came later, if it has one.
        residencies = await self._geographies.all()
        is_away = any(_is_shared_away(one) for one in known)
        yield pb.ListCapacityResponse(shared_away=is_away)
        told = (messages.cluster(one, with_models=request.with_models) for one in found)
        for page, _ in stream_pages(told):
            yield pb.ListCapacityResponse(clusters=page)
        for some, _ in stream_pages(assignments):
            yield pb.ListCapacityResponse(assignments=some)
        of_clusters = (messages.cluster_queues(one, queues[one]) for one in ids if one in queues)
        for part, _ in stream_pages(of_clusters):
            yield pb.ListCapacityResponse(queues=part)
        for bound, _ in stream_pages(residencies):
            yield pb.ListCapacityResponse(residencies=bound)

    async def LookupIssuer(
        self, request: pb.LookupIssuerRequest, context: Context
    ) -> pb.ClusterIssuer:
        """Returns who signs the tokens of a cluster's pods, and whose namespaces it has."""
        found = await self._stores.issuers.get(request.cluster_id)
        assigned = await self._stores.assignments.all(cluster_id=request.cluster_id)
        found.namespaces.extend(
            pb.ProjectNamespace(
                organization_id=one.organization_id,
                project_id=one.project_id,
                namespace=one.namespace,
            )
            for one in assigned
            if not one.removing
        )
        return found

    async def PutWorkload(
        self, request: pb.PutWorkloadRequest, context: Context
    ) -> pb.PutWorkloadResponse:
        """Stores the desired state of a workload, where it may be in its cluster."""
        workload = records.check_workload(request.workload)
        projects = sorted(records.owning_projects(workload))
        geographies = {await self._geographies.of(one) for one in projects} - {""}
        revision, touched = await self._inserts.put(workload, geographies)
        reach("clusters.workload_stored")
        for cluster_id in touched:
            self._wake.touch(records.cluster_topic(cluster_id))
        return pb.PutWorkloadResponse(revision=revision)

    async def WatchStatus(
        self, request: pb.WatchStatusRequest, context: Context
    ) -> AsyncIterator[pb.StatusDelta]:
        """Streams the statuses of an owner's workloads until the caller cancels."""
        owner = records.check_identifier(request.owner, "owner")
        topic = records.status_topic(owner)
        async for change, snapshot in follow(
            self._wake,
            topic,
            lambda after: self._stores.workloads.statuses(owner, after),
            poll_seconds=LOOK_SECONDS,
            beat_seconds=BEAT_SECONDS,
        ):
            for delta in messages.status_deltas(change, snapshot=snapshot):
                yield delta
