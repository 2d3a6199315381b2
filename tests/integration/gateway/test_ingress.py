"""Everything through one address: a real nginx that ends TLS, with what deploy/ingress ships.

Its idle times are cut to some seconds, so that silence is tested; nothing else of it is.
"""

import asyncio
import json
import ssl
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.support.fakes.api_server import ApiServer, running_api_server
from tests.support.processes.ingress import Ingress, program, running_ingress
from tests.support.processes.shell import PROGRAM, Shell
from tests.support.processes.windlass import Windlass, free_port, make_single, running
from tests.support.services.access_plane import CREDENTIAL, RawClient, accounts
from tests.support.waiting import until

from windlass.api.clusters.v1 import clusters_pb2
from windlass.api.sessions.v1 import sessions_pb2
from windlass.core.ids import new_id
from windlass_agent.control_plane.connection import ControlPlane, enroll
from windlass_agent.kube.access import Access as KubeAccess
from windlass_agent.tunnel.kubernetes import KubernetesApi
from windlass_agent.tunnel.targets import Targets
from windlass_agent.tunnel.tunnel import Tunnel

# A tunnel looks every twenty seconds whether it was silent for as long, and then speaks.
IDLE = "45s"
SILENT_SECONDS = 56
PODS = "/api/v1/namespaces/team-a/pods"
LOG = f"GET {PODS}/p/log?follow=true"


@dataclass
class Site:
    """The server, and nginx in front of it."""

    server: Windlass
    ingress: Ingress
    cluster_id: str
    credential: str

    def http(self) -> httpx.Client:
        """The API through nginx, as the owner."""
        return httpx.Client(
            base_url=self.ingress.url,
            headers={"Authorization": f"Bearer {self.server.owner_key}"},
            verify=ssl.create_default_context(cafile=str(self.ingress.ca)),
            timeout=60,
        )

    def access(self) -> sessions_pb2.Access:
        with self.http() as http:
            made = http.post(f"/v1/clusters/{self.cluster_id}/access").json()
        # The kubeconfig's own authority is the system's: nginx has a certificate of the site's.
        assert made["ca"] == ""
        assert made["server"] == f"{self.ingress.url}/clusters/{self.cluster_id}"
        ca = self.ingress.ca.read_text()
        return sessions_pb2.Access(token=made["token"], server=made["server"], ca=ca)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    program()
    folder = tmp_path_factory.mktemp("ingress")
    grpc, kubernetes, http = free_port(), free_port(), free_port()
    with running_ingress(
        folder / "nginx", {8080: http, 8081: grpc, 8082: kubernetes}, idle=IDLE
    ) as ingress:
        settings = {
            "agent": {"enabled": False},
            "http": {"port": http, "public_url": ingress.url},
            "grpc": {"listen": f"127.0.0.1:{grpc}"},
            "sessions": {
                "kubernetes": {
                    "listen": f"127.0.0.1:{kubernetes}",
                    "tls": "terminated",
                    "public_url": ingress.url,
                }
            },
        }
        made = make_single(folder / "data", settings)
        made.port = http
        with running(made) as server:
            yield registered(server, ingress)


def registered(server: Windlass, ingress: Ingress) -> Site:
    """A cluster of the owner's project, whose agent has enrolled through nginx."""
    site = Site(server, ingress, "", "")
    with site.http() as http:
        made = http.post("/v1/clusters", json={"name": "east"}).json()
        project = http.get("/v1/me").json()["principal"]["project_id"]
        path = f"/v1/clusters/{made['id']}/assignments/{project}"
        http.put(path, json={"namespace": "team-a"}).raise_for_status()
    site.cluster_id = made["id"]
    address = f"grpcs://localhost:{ingress.port}"
    enrolling = enroll(address, made["registration_key"], ca=ingress.ca)
    site.credential = asyncio.run(enrolling).credential
    return site


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[ApiServer]:
    async with running_api_server(tmp_path / "api") as api:
        yield api


@asynccontextmanager
async def tunnel(site: Site, api: ApiServer) -> AsyncIterator[ControlPlane]:
    """The agent's, through nginx."""
    address = f"grpcs://localhost:{site.ingress.port}"
    control = ControlPlane(
        clusters=address, jobs=address, credential=site.credential, ca=site.ingress.ca
    )

    async def authorization() -> str:
        return CREDENTIAL

    kubernetes = KubernetesApi(KubeAccess(api.url, api.tls(), authorization), accounts)
    made = Tunnel(control, Targets(endpoint=lambda _: "", kubernetes=kubernetes))
    running_tunnel = asyncio.create_task(made.run(new_id("session-")))
    try:
        await answered(site)
        yield control
    finally:
        running_tunnel.cancel()
        await asyncio.gather(running_tunnel, return_exceptions=True)
        await control.close()


async def answered(site: Site) -> None:
    """Once the cluster answers."""
    client = await RawClient.connect(site.access())
    token = site.access().token
    await until(lambda: client.ask("GET /version", token), holds=lambda got: got.status == 200)
    client.close()


async def test_the_api_the_agents_calls_and_kubernetes_through_one_address(
    site: Site, api: ApiServer
) -> None:
    async with tunnel(site, api) as control:
        watching = control.watch(
            clusters_pb2.WatchRequest(session_id="s", agent_version="1", executor="kubernetes")
        )
        assert (await anext(watching)).snapshot
        assert await control.heartbeat("s", clusters_pb2.Capacity())
        access = site.access()
        client = await RawClient.connect(access)
        answer = await client.ask(f"GET {PODS}", access.token)
        assert (answer.status, answer.json["path"]) == (200, PODS)
        forbidden = await client.ask("GET /api/v1/secrets", access.token)
        assert (forbidden.status, forbidden.json["reason"]) == (403, "Forbidden")
        # No service but the agents' can be called from outside.
        with site.http() as http:
            path = "/windlass.api.sessions.v1.SessionsInternalService/Forward"
            assert http.post(path).status_code == 404
        client.close()


@pytest.mark.parametrize("protocol", ["websocket", "SPDY/3.1"])
async def test_upgrades_pass(site: Site, api: ApiServer, protocol: str) -> None:
    """kubectl's, and those of an old one."""
    async with tunnel(site, api):
        access = site.access()
        client = await RawClient.connect(access)
        lines = ["Connection: Upgrade", f"Upgrade: {protocol}"]
        if protocol == "websocket":
            lines += ["Sec-WebSocket-Key: a", "Sec-WebSocket-Protocol: v5.channel.k8s.io"]
        method = "GET" if protocol == "websocket" else "POST"
        await client.send(f"{method} {PODS}/p/exec?command=wait", access.token, *lines)
        head = await client.read_head()
        assert (head.status, head.headers["upgrade"].lower()) == (101, protocol.lower())
        if protocol != "websocket":
            client.writer.write(b"\x80\x03frames")
            assert await client.reader.readexactly(8) == b"\x80\x03frames"
        client.close()
        await until(lambda: api.open == 0)


async def test_what_is_open_outlives_a_reload_and_silence(site: Site, api: ApiServer) -> None:
    async with tunnel(site, api):
        access = site.access()
        client = await RawClient.connect(access)
        shell = await RawClient.connect(access)
        await client.send(LOG, access.token)
        await client.read_head()
        upgrade = ("Connection: Upgrade", "Upgrade: SPDY/3.1")
        await shell.send(f"POST {PODS}/p/exec?command=sh", access.token, *upgrade)
        await shell.read_head()
        site.ingress.reload()
        # New ones go over the new workers, and over the control stream that the old one keeps.
        fresh = await RawClient.connect(site.access())
        assert (await fresh.ask("GET /version", access.token)).status == 200
        fresh.close()
        for number in range(SILENT_SECONDS // 8):
            # People's own connections are held by the times of the shipped file; here one must
            # speak. The tunnel's, of which nobody says anything, hold themselves.
            await asyncio.sleep(8)
            api.lines.put_nowait(b"%d\n" % number)
            assert await client.chunk() == b"%d\n" % number
            shell.writer.write(b"x")
            assert await shell.reader.readexactly(1) == b"x"
        for one in (client, shell):
            one.close()


async def test_revocation_reaches_through(site: Site, api: ApiServer) -> None:
    async with tunnel(site, api):
        with site.http() as http:
            body = {"name": "k", "role": "project_member"}
            body["project_id"] = http.get("/v1/me").json()["principal"]["project_id"]
            key = http.post("/v1/api_keys", json=body).json()
            http.headers["Authorization"] = f"Bearer {key['value']}"
            made = http.post(f"/v1/clusters/{site.cluster_id}/access").json()
        access = sessions_pb2.Access(server=made["server"], ca=site.ingress.ca.read_text())
        client = await RawClient.connect(access)
        await client.send(LOG, made["token"])
        await client.read_head()
        with site.http() as http:
            http.delete(f"/v1/api_keys/{key['id']}").raise_for_status()
        assert await client.ends() < 2


def test_the_command_through_nginx(site: Site, tmp_path: Path) -> None:
    shell = Shell(site.server, tmp_path)
    shell.environment["SSL_CERT_FILE"] = str(site.ingress.ca)
    environment: dict[str, Any] = {**shell.environment, "WINDLASS_API_KEY": site.server.owner_key}
    command = [*PROGRAM, "clusters", "token", "east", "--base-url", site.ingress.url]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["status"]["token"]
