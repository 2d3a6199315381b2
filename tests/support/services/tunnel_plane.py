"""Clusters and tunnels in this process, with a real agent's tunnel that ends at a stub API server.

Each replica has what a process of sessions has: its own App and socket, on one
database. What people see of the tunnel, the Kubernetes listener, is left out.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
from tests.support.fakes.stub_upstream import StubUpstream

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.api.clusters.v1 import clusters_pb2_grpc as rpc
from windlass.api.sessions.v1.sessions_pb2 import (
    ACCESS_LEVEL_VIEWER,
    AccessLevel,
    KubernetesTarget,
    Target,
)
from windlass.clusters import module as clusters_module
from windlass.core.app import App, runtime_dir
from windlass.core.config import Settings
from windlass.core.db import Database
from windlass.core.ids import new_id
from windlass.core.keyring import open_keyring
from windlass.core.rpc.auth import Principal
from windlass.core.rpc.tokens import TokenAuthority
from windlass.serve import make_app, make_store
from windlass.sessions.module import build_tunnels
from windlass.sessions.tunnel.tunnels import Tunnels
from windlass.tunnel.byte_stream import ByteStream
from windlass_agent.control_plane.connection import ControlPlane
from windlass_agent.kube.access import Access
from windlass_agent.namespaces.controller import Accounts
from windlass_agent.tunnel.kubernetes import KubernetesApi
from windlass_agent.tunnel.targets import Targets
from windlass_agent.tunnel.tunnel import Tunnel

TOKEN = "Bearer of-the-agent"
NAMESPACE = "windlass-proj-a"


@dataclass
class Replica:
    """The services of one process."""

    app: App
    tunnels: Tunnels
    socket: Path
    gateway: TokenAuthority

    @property
    def address(self) -> str:
        return f"unix://{self.socket}"

    async def register(self, name: str) -> pb.EnrollResponse:
        principal = Principal("org-a", permissions=frozenset({"clusters.write"}))
        metadata = (("windlass-principal", self.gateway.sign_principal(principal)),)
        async with grpc.aio.insecure_channel(self.address) as channel:
            clusters = rpc.ClustersServiceStub(channel)
            made = await clusters.RegisterCluster(
                pb.RegisterClusterRequest(name=name), metadata=metadata
            )
            agents = rpc.ClustersAgentServiceStub(channel)
            return await agents.Enroll(pb.EnrollRequest(registration_key=made.registration_key))

    async def unregister(self, cluster_id: str) -> None:
        principal = Principal("org-a", permissions=frozenset({"clusters.write"}))
        metadata = (("windlass-principal", self.gateway.sign_principal(principal)),)
        async with grpc.aio.insecure_channel(self.address) as channel:
            await rpc.ClustersServiceStub(channel).UnregisterCluster(
                pb.UnregisterClusterRequest(cluster_id=cluster_id), metadata=metadata
            )

    async def connect(self, cluster_id: str, target: Target | None = None) -> ByteStream:
        """Opens a connection to the API server or to another target."""
        connection = await self.tunnels.connect(cluster_id, target or kubernetes())
        assert isinstance(connection, ByteStream)
        return connection


def kubernetes(
    namespace: str = NAMESPACE,
    *,
    level: AccessLevel.ValueType = ACCESS_LEVEL_VIEWER,
    user: str = "ann",
) -> Target:
    """Returns the API server as a target, under an account of a namespace."""
    return Target(kubernetes=KubernetesTarget(namespace=namespace, level=level, user=user))


@contextlib.asynccontextmanager
async def running_replica(
    url: str, data: Path, *, name: str = "one", settings: dict[str, Any] | None = None
) -> AsyncIterator[Replica]:
    """Serves clusters and tunnels until the end of the block."""
    made = Settings(data_dir=data, **(settings or {}))
    data.mkdir(parents=True, exist_ok=True)
    database = Database(url)
    gateway = TokenAuthority(database, kind="gateway", name="gateway")
    await gateway.rotate()
    socket = runtime_dir(data) / f"{name}.sock"
    modules = ("users", "clusters", "sessions")
    keyring = await open_keyring(made, database)
    app = make_app(
        made, modules, database=database, keyring=keyring, objects=make_store(made, keyring),
        url=url, socket=socket,
    )  # fmt: skip
    await clusters_module.build(app)
    tunnels = build_tunnels(app)
    stop = asyncio.Event()
    running = asyncio.create_task(app.run(stop, socket))
    ready = asyncio.create_task(app.ready.wait())
    await asyncio.wait({running, ready}, return_when=asyncio.FIRST_COMPLETED)
    try:
        yield Replica(app, tunnels, socket, gateway)
    finally:
        stop.set()
        await running
        await database.close()


@dataclass
class TunnelAgent:
    """The agent's end of a tunnel in this process."""

    cluster_id: str
    control: ControlPlane
    api: KubernetesApi | None
    tunnel: Tunnel
    task: asyncio.Task[None]
    endpoints: dict[str, str] = field(default_factory=dict)
    namespaces: set[str] = field(default_factory=set)

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        if self.api is not None:
            self.api.close()
        await self.control.close()


def access_to(upstream: StubUpstream) -> Access:
    """Returns the agent's access to the stub."""

    async def authorization() -> str:
        return TOKEN

    return Access(url=upstream.url, tls=upstream.tls(), authorization=authorization)


def start_agent(
    enrolled: pb.EnrollResponse,
    address: str,
    access: Access | None = None,
    *,
    session_id: str = "",
) -> TunnelAgent:
    """Starts an agent's tunnel to `address` that runs until it is stopped."""
    control = ControlPlane(clusters=address, jobs=address, credential=enrolled.credential)
    endpoints: dict[str, str] = {}
    namespaces = {NAMESPACE}

    def accounts(name: str) -> Accounts | None:
        account = f"system:serviceaccount:{name}:windlass-"
        return Accounts(f"{account}viewer", f"{account}editor") if name in namespaces else None

    api = KubernetesApi(access, accounts) if access else None
    targets = Targets(endpoint=lambda name: endpoints.get(name, ""), kubernetes=api)
    tunnel = Tunnel(control, targets)
    task = asyncio.create_task(tunnel.run(session_id or new_id("session-")))
    return TunnelAgent(enrolled.cluster_id, control, api, tunnel, task, endpoints, namespaces)


async def ask(stream: ByteStream, target: str, *, method: str = "GET", body: bytes = b"") -> bytes:
    """Returns the response of one exchange; raises what broke it."""
    await stream.write(request(target, method=method, body=body))
    answer = b""
    while data := await stream.read():
        answer += data
    await stream.close()
    return answer


def request(target: str, *headers: str, method: str = "GET", body: bytes = b"") -> bytes:
    """Returns a whole request as the listener sends it."""
    lines = [f"{method} {target} HTTP/1.1", "Host: kubernetes", *headers]
    if body:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode() + body


UPGRADE = ("Connection: Upgrade", "Upgrade: echo")
