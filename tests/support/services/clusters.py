"""The clusters service in this process, over real gRPC and Postgres, and its callers."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from windlass import embedded_agent as embedded_agent_module
from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.api.clusters.v1 import clusters_pb2_grpc as rpc
from windlass.api.jobs.v1.jobs_pb2 import Resources
from windlass.api.users.v1 import users_pb2, users_pb2_grpc
from windlass.clusters import module
from windlass.core.app import App, runtime_dir
from windlass.core.config import Settings
from windlass.core.db import Database
from windlass.core.db.paging import whole
from windlass.core.keyring import open_keyring
from windlass.core.rpc.auth import Principal
from windlass.core.rpc.tokens import TokenAuthority
from windlass.serve import make_app, make_store
from windlass.users import module as users_module

OWNER = "jobs"


@dataclass
class ControlPlane:
    """A running control plane, with `jobs` if a test passes a servicer for it."""

    app: App
    socket: Path
    gateway: TokenAuthority

    @property
    def address(self) -> str:
        return f"unix://{self.socket}"

    @property
    def internal(self) -> rpc.ClustersInternalServiceAsyncStub:
        return self.app.clients.stub(rpc.ClustersInternalServiceStub)

    async def capacity(self) -> pb.ListCapacityResponse:
        """Returns all parts of the capacity that placement reads."""
        return await whole(
            self.internal.ListCapacity(pb.ListCapacityRequest()), pb.ListCapacityResponse()
        )

    def tenant(
        self, organization: str = "org-a", permissions: tuple[str, ...] = ("read", "write")
    ) -> dict[str, Any]:
        """Returns the metadata of a tenant's call."""
        principal = Principal(
            organization, permissions=frozenset(f"clusters.{verb}" for verb in permissions)
        )
        return {"metadata": (("windlass-principal", self.gateway.sign_principal(principal)),)}

    @property
    def operator(self) -> dict[str, Any]:
        """Returns the metadata of a call by the platform's administrator."""
        permissions = {"clusters.read", "clusters.write", "platform.read", "platform.write"}
        principal = Principal("org-platform", permissions=frozenset(permissions))
        return {"metadata": (("windlass-principal", self.gateway.sign_principal(principal)),)}

    def member(self, project: users_pb2.Project) -> dict[str, Any]:
        """Returns the metadata of a call by a project's member."""
        principal = Principal(
            project.organization_id, project.id, permissions=frozenset({"clusters.read"})
        )
        return {"metadata": (("windlass-principal", self.gateway.sign_principal(principal)),)}

    def owner(self, organization_id: str) -> dict[str, Any]:
        """Returns the metadata of a call by an organization's owner."""
        principal = Principal(organization_id, permissions=frozenset({"projects.write"}))
        return {"metadata": (("windlass-principal", self.gateway.sign_principal(principal)),)}

    async def project(self, title: str = "Main") -> users_pb2.Project:
        """Returns a project of its own organization."""
        async with self.channel() as channel:
            users = users_pb2_grpc.UsersServiceStub(channel)
            organization = await users.CreateOrganization(
                users_pb2.CreateOrganizationRequest(title=title), **self.operator
            )
            return await users.CreateProject(
                users_pb2.CreateProjectRequest(title=title), **self.owner(organization.id)
            )

    @asynccontextmanager
    async def channel(self) -> AsyncIterator[grpc.aio.Channel]:
        async with grpc.aio.insecure_channel(self.address) as channel:
            yield channel

    async def register(self, name: str = "east", **policy: Any) -> pb.RegisterClusterResponse:
        async with self.channel() as channel:
            stub = rpc.ClustersServiceStub(channel)
            request = pb.RegisterClusterRequest(name=name, policy=pb.ClusterPolicy(**policy))
            return await stub.RegisterCluster(request, **self.tenant())

    async def enroll(self, name: str = "east", **policy: Any) -> pb.EnrollResponse:
        key = (await self.register(name, **policy)).registration_key
        async with self.channel() as channel:
            stub = rpc.ClustersAgentServiceStub(channel)
            return await stub.Enroll(pb.EnrollRequest(registration_key=key))


@asynccontextmanager
async def running_control_plane(
    url: str,
    data: Path,
    *,
    jobs: tuple[object, Callable[[Any, Any], None]] | None = None,
    embedded_agent: bool = False,
    settings: Settings | None = None,
) -> AsyncIterator[ControlPlane]:
    """Serves clusters until the end of the block; raises what failed in it."""
    settings = settings or Settings()
    settings.data_dir = data
    data.mkdir(parents=True, exist_ok=True)
    database = Database(url)
    gateway = TokenAuthority(database, kind="gateway", name="gateway")
    await gateway.rotate()
    socket = runtime_dir(data) / "windlass.sock"
    modules = ("users", "clusters", "jobs") if jobs else ("users", "clusters")
    keyring = await open_keyring(settings, database)
    app = make_app(
        settings, modules, database=database, keyring=keyring,
        objects=make_store(settings, keyring), url=url, socket=socket,
    )  # fmt: skip
    for built in (users_module, module):
        await built.build(app)
    if jobs:
        app.serve(*jobs)
    if embedded_agent:
        await embedded_agent_module.build(app)
    stop = asyncio.Event()
    running = asyncio.create_task(app.run(stop, socket))
    ready = asyncio.create_task(app.ready.wait())
    await asyncio.wait({running, ready}, return_when=asyncio.FIRST_COMPLETED)
    try:
        yield ControlPlane(app, socket, gateway)
    finally:
        stop.set()
        await running
        await database.close()


def job(
    identifier: str,
    cluster_id: str,
    *,
    generation: int = 1,
    attempt: int = 1,
    desired: pb.DesiredState.ValueType = pb.DESIRED_STATE_RUNNING,
    owner: str = OWNER,
    namespace: str = "",
    framework: str = "",
    **resources: int,
) -> pb.PutWorkloadRequest:
    """Returns a request as the owner of a job makes it."""
    return pb.PutWorkloadRequest(
        workload=pb.Workload(
            id=identifier,
            kind=pb.WORKLOAD_KIND_RUN_TO_COMPLETION,
            owner=owner,
            cluster_id=cluster_id,
            generation=generation,
            desired=desired,
            placement=pb.Placement(namespace=namespace),
            resources=Resources(**resources),
            job=pb.JobWorkload(
                job_id=identifier, attempt=attempt, backend="test", framework=framework
            ),
        )
    )
