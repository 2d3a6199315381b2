"""A control plane with two tenants, a cluster and its tunnel, and a client that speaks raw HTTP."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from ipaddress import ip_network
from pathlib import Path
from typing import Any, TypeVar

import grpc
from tests.support.fakes.api_server import ApiServer
from tests.support.services.platform import Platform, running_platform
from tests.support.waiting import PATIENCE, Watch

from windlass.api.clusters.v1 import clusters_pb2, clusters_pb2_grpc
from windlass.api.rbac.v1 import rbac_pb2, rbac_pb2_grpc
from windlass.api.sessions.v1 import sessions_pb2, sessions_pb2_grpc
from windlass.api.users.v1 import users_pb2, users_pb2_grpc
from windlass.core.config import Settings
from windlass.core.ids import new_id
from windlass.core.rpc.auth import Principal, digest
from windlass.policy import permissions_of
from windlass_agent.control_plane.connection import ControlPlane
from windlass_agent.kube.access import Access as KubeAccess
from windlass_agent.namespaces.controller import Accounts
from windlass_agent.tunnel.kubernetes import KubernetesApi
from windlass_agent.tunnel.targets import Targets
from windlass_agent.tunnel.tunnel import Tunnel

SERVICES = ("users", "rbac", "clusters", "sessions")
Stub = TypeVar("Stub")
CREDENTIAL = "Bearer the-agents-own"


@dataclass
class Tenant:
    """A caller with a key, a project and its namespace."""

    plane: "AccessPlane"
    principal: Principal
    key: str
    namespace: str

    @property
    def caller(self) -> dict[str, Any]:
        """Returns the metadata of a call in its name."""
        return self.plane.calling(self.principal)

    async def access(self, **fields: Any) -> sessions_pb2.Access:
        """Returns a fresh token."""
        stub = self.plane.stub(sessions_pb2_grpc.SessionsServiceStub)
        request = sessions_pb2.CreateAccessRequest(cluster_id=self.plane.cluster_id, **fields)
        return await stub.CreateAccess(request, **self.caller)

    async def audited(self) -> list[rbac_pb2.AuditEvent]:
        """Returns the audit events of its organization about clusters, oldest first."""
        owner = Principal(self.principal.organization_id, permissions=frozenset({"audit.read"}))
        stub = self.plane.stub(rbac_pb2_grpc.RbacServiceStub)
        answer = await stub.ListAuditEvents(
            rbac_pb2.ListAuditEventsRequest(limit=100), **self.plane.calling(owner)
        )
        return [one for one in reversed(answer.events) if one.action.startswith("kubernetes/")]


@dataclass
class AccessPlane:
    """The services, the cluster and its agent's tunnel."""

    platform: Platform
    api: ApiServer
    cluster_id: str = ""
    credential: str = ""
    tunnels: list[asyncio.Task[None]] = field(default_factory=list)

    def stub(self, kind: Callable[[grpc.aio.Channel], Stub]) -> Stub:
        return self.platform.app.clients.stub(kind)

    def calling(self, principal: Principal) -> dict[str, Any]:
        token = self.platform.gateway.sign_principal(principal)
        return {"metadata": (("windlass-principal", token),)}

    @property
    def admin(self) -> dict[str, Any]:
        """Returns the metadata of a call by the platform's administrator."""
        granted = permissions_of(("platform_admin",))
        return self.calling(Principal("org-platform", "", "root", "", ("platform_admin",), granted))

    async def tenant(self, name: str, *, role: str = "project_member") -> Tenant:
        """Creates an organization with a project and a key, assigned to the cluster."""
        users = self.stub(users_pb2_grpc.UsersServiceStub)
        organization = await users.CreateOrganization(
            users_pb2.CreateOrganizationRequest(title=name), **self.admin
        )
        owner = Principal(
            organization.id, "", "boss", "", ("organization_owner",),
            permissions_of(("organization_owner",)),
        )  # fmt: skip
        project = await users.CreateProject(
            users_pb2.CreateProjectRequest(title="Main"), **self.calling(owner)
        )
        tenant = await self.key_of(owner, project.id, role)
        tenant.namespace = f"windlass-{name.lower()}"
        await self.assign(project.id, tenant.namespace)
        return tenant

    async def key_of(self, owner: Principal, project_id: str, role: str, **more: Any) -> Tenant:
        """Returns a caller with a new key of a role in a project."""
        users = self.stub(users_pb2_grpc.UsersServiceStub)
        made = await users.CreateApiKey(
            users_pb2.CreateApiKeyRequest(
                name="k",
                project_id=project_id,
                role=users_pb2.Role.Value(f"ROLE_{role.upper()}"),
                **more,
            ),
            **self.calling(owner),
        )
        authenticate = rbac_pb2.AuthenticateRequest(key_digest=digest(made.secret))
        internal = self.stub(rbac_pb2_grpc.RbacInternalServiceStub)
        found = await internal.Authenticate(authenticate)
        return Tenant(self, Principal.from_proto(found.principal), made.secret, "")

    async def assign(self, project_id: str, namespace: str) -> None:
        clusters = self.stub(clusters_pb2_grpc.ClustersServiceStub)
        wanted = clusters_pb2.Assignment(
            cluster_id=self.cluster_id, project_id=project_id, namespace=namespace
        )
        await clusters.PutAssignment(
            clusters_pb2.PutAssignmentRequest(assignment=wanted), **self.admin
        )

    async def unassign(self, tenant: Tenant) -> None:
        clusters = self.stub(clusters_pb2_grpc.ClustersServiceStub)
        request = clusters_pb2.DeleteAssignmentRequest(
            cluster_id=self.cluster_id, project_id=tenant.principal.project_id
        )
        await clusters.DeleteAssignment(request, **self.admin)

    async def revoke(self, tenant: Tenant) -> None:
        users = self.stub(users_pb2_grpc.UsersServiceStub)
        request = users_pb2.RevokeApiKeyRequest(key_id=tenant.principal.key_id)
        await users.RevokeApiKey(request, **tenant.caller)

    async def join(self) -> None:
        """Registers a cluster whose agent is only a tunnel."""
        internal = self.stub(clusters_pb2_grpc.ClustersInternalServiceStub)
        request = clusters_pb2.EnrollLocalRequest(name="east", executor="kubernetes")
        enrolled = await internal.EnrollLocal(request)
        self.cluster_id, self.credential = enrolled.cluster_id, enrolled.credential
        await self.dig()

    async def dig(self) -> None:
        """Starts the agent's tunnel, which is open when this returns."""
        address = self.platform.app.clients.address("sessions")
        control = ControlPlane(clusters=address, jobs=address, credential=self.credential)

        async def authorization() -> str:
            return CREDENTIAL

        access = KubeAccess(self.api.url, self.api.tls(), authorization)
        api = KubernetesApi(access, accounts)
        tunnel = Tunnel(control, Targets(endpoint=lambda _: "", kubernetes=api))
        self.tunnels.append(asyncio.create_task(tunnel.run(new_id("session-"))))

    async def cave_in(self) -> None:
        """Ends the agent's tunnel."""
        for task in self.tunnels:
            task.cancel()
        await asyncio.gather(*self.tunnels, return_exceptions=True)
        self.tunnels.clear()


def accounts(namespace: str) -> Accounts:
    """Returns the accounts of any namespace."""
    begin = f"system:serviceaccount:{namespace}"
    return Accounts(f"{begin}:windlass-viewer", f"{begin}:windlass-editor")


@asynccontextmanager
async def access_plane(url: str, folder: Path, api: ApiServer) -> AsyncIterator[AccessPlane]:
    """Runs until the end of the block."""
    settings = Settings()
    settings.sessions.kubernetes.listen = "127.0.0.1:0"
    settings.http.trusted_proxies = [ip_network("127.0.0.1/32")]
    async with running_platform(
        url, folder / "data", services=SERVICES, settings=settings
    ) as platform:
        plane = AccessPlane(platform, api)
        await plane.join()
        try:
            yield plane
        finally:
            await plane.cave_in()


@dataclass
class Answer:
    """Response to a call."""

    status: int
    headers: dict[str, str]
    body: bytes = b""

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def message(self) -> str:
        """Returns the message of a Status object."""
        assert self.json["kind"] == "Status"
        assert self.json["code"] == self.status
        return str(self.json["message"])


class RawClient:
    """One TLS connection to the listener that carries raw bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, root: str):
        self.reader = reader
        self.writer = writer
        self._root = root

    @classmethod
    async def connect(
        cls, access: sessions_pb2.Access, *, protocols: Sequence[str] = ("http/1.1",)
    ) -> "RawClient":
        rest = access.server.removeprefix("https://")
        address, _, path = rest.partition("/")
        host, _, port = address.partition(":")
        tls = ssl.create_default_context(cadata=access.ca)
        tls.set_alpn_protocols(list(protocols))
        reader, writer = await asyncio.open_connection(host, int(port), ssl=tls)
        return cls(reader, writer, f"/{path}")

    def head(self, request: str, token: str, *lines: str) -> bytes:
        method, target = request.split(" ", 1)
        first = [f"{method} {self._root}{target} HTTP/1.1", "Host: h"]
        named = [f"Authorization: Bearer {token}"] if token else []
        return "\r\n".join([*first, *named, *lines, "", ""]).encode("latin-1")

    async def send(self, request: str, token: str, *lines: str, body: bytes = b"") -> None:
        self.writer.write(self.head(request, token, *lines) + body)
        await self.writer.drain()

    async def read_head(self) -> Answer:
        raw = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        status, *lines = raw.rstrip().split("\r\n")
        pairs = (line.split(": ", 1) for line in lines)
        return Answer(int(status.split(" ")[1]), {name.lower(): value for name, value in pairs})

    async def answer(self) -> Answer:
        found = await self.read_head()
        if "content-length" in found.headers:
            found.body = await self.reader.readexactly(int(found.headers["content-length"]))
        return found

    async def ask(self, request: str, token: str, *lines: str, body: bytes = b"") -> Answer:
        await self.send(request, token, *lines, body=body)
        return await self.answer()

    async def chunk(self) -> bytes:
        size = int(await self.reader.readuntil(b"\r\n"), 16)
        data = await self.reader.readexactly(size + 2)
        return data[:-2]

    async def ends(self) -> float:
        """Returns the seconds until the server ended the connection, by a `Watch`."""
        watch = Watch()
        try:
            async with asyncio.timeout(PATIENCE):
                while await self.reader.read(65536):
                    pass
        except ConnectionError:
            pass
        return watch.seconds()

    def close(self) -> None:
        self.writer.transport.abort()


async def refused(call: Any) -> grpc.aio.AioRpcError:
    """Returns the error of a call that must fail."""
    try:
        await call
    except grpc.aio.AioRpcError as error:
        return error
    raise AssertionError("it was not refused")
