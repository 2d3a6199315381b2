"""A scripted agent of a cluster with Kubernetes and Kueue, and who assigns projects to it."""

from dataclasses import dataclass
from typing import Any

from tests.support.services.jobs_plane import JobsPlane, ScriptedAgent, Tenant

from windlass.api.clusters.v1 import clusters_pb2, clusters_pb2_grpc
from windlass.api.users.v1 import users_pb2, users_pb2_grpc
from windlass.core.rpc.auth import Principal

_OPERATOR = frozenset(
    {"clusters.read", "clusters.write", "platform.read", "platform.write", "projects.write"}
)


@dataclass
class KueueAgent(ScriptedAgent):
    """Reports its queues, and every assignment as set up unless told otherwise."""

    executor: str = "kubernetes"
    obedient: bool = True
    _revision: int = 0
    _sequence: int = 0

    @classmethod
    async def join(cls, plane: JobsPlane, name: str, *, obedient: bool = True) -> "KueueAgent":
        internal = plane.app.clients.stub(clusters_pb2_grpc.ClustersInternalServiceStub)
        request = clusters_pb2.EnrollLocalRequest(name=name, executor="kubernetes")
        enrolled = await internal.EnrollLocal(request)
        capacity = clusters_pb2.Capacity(backends=["trl"])
        agent = cls(plane, enrolled.cluster_id, enrolled.credential, capacity, obedient=obedient)
        await agent.connect()
        return agent

    async def told(self, delta: clusters_pb2.WorkloadsDelta) -> None:
        if delta.snapshot:
            await self._observe(snapshot=True)
        if delta.HasField("spec"):
            self._revision = delta.spec.revision
            if self.obedient:
                await self.obey()

    async def obey(self) -> None:
        """Sets up every later assignment as soon as it arrives."""
        self.obedient = True
        status = clusters_pb2.SpecStatus(revision=self._revision)
        await self._observe(spec_status=status)

    async def offers(self, queue: str, *, gpus: int, used: int = 0, pending: int = 0) -> None:
        """Reports a ClusterQueue and its quota."""
        quotas = [
            clusters_pb2.ResourceQuota(
                flavor="a100", resource="nvidia.com/gpu", nominal=gpus, used=used
            ),
            clusters_pb2.ResourceQuota(flavor="a100", resource="cpu", nominal=64_000),
        ]
        found = clusters_pb2.ClusterQueue(name=queue, quotas=quotas, pending=pending, active=True)
        item = clusters_pb2.InventoryItem(key=f"cluster_queue/{queue}", cluster_queue=found)
        await self._observe(items=[item])

    async def _observe(self, **fields: Any) -> None:
        self._sequence += 1
        request = clusters_pb2.ReportInventoryRequest(
            session_id=self.session, sequence=self._sequence, **fields
        )
        await self._clusters.ReportInventory(request, metadata=self.metadata)


def operator(plane: JobsPlane, organization: str = "org-platform") -> dict[str, Any]:
    """Returns the metadata of a call by the platform's administrator."""
    principal = Principal(organization, permissions=_OPERATOR)
    return {"metadata": (("windlass-principal", plane.gateway.sign_principal(principal)),)}


async def known_tenant(plane: JobsPlane, title: str = "Main") -> Tenant:
    """Returns a project that exists and has the base model `tiny`."""
    users = users_pb2_grpc.UsersServiceStub(plane.channel)
    organization = await users.CreateOrganization(
        users_pb2.CreateOrganizationRequest(title=title), **operator(plane)
    )
    project = await users.CreateProject(
        users_pb2.CreateProjectRequest(title=title), **operator(plane, organization.id)
    )
    return await plane.tenant(project.id, organization.id)


async def assign(
    tenant: Tenant, agent: ScriptedAgent, queue: str, **fields: Any
) -> clusters_pb2.Assignment:
    """Lets a tenant's project use a queue of an agent's cluster."""
    stub = clusters_pb2_grpc.ClustersServiceStub(tenant.plane.channel)
    wanted = clusters_pb2.Assignment(
        cluster_id=agent.cluster_id, project_id=tenant.project, cluster_queue=queue, **fields
    )
    request = clusters_pb2.PutAssignmentRequest(assignment=wanted)
    return await stub.PutAssignment(request, **operator(tenant.plane))
