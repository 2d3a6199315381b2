"""Commands in pods from Python, through the listener and the tunnel."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.fakes.api_server import ApiServer, running_api_server
from tests.support.services.access_plane import AccessPlane, Tenant, access_plane
from tests.support.waiting import until

from windlass.api.sessions.v1 import sessions_pb2
from windlass.client.errors import ConnectionFailed, WindlassError
from windlass.client.resources.clusters import Clusters, Kubernetes
from windlass.client.resources.pod_exec import STDOUT, CommandFailed, executing


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[ApiServer]:
    async with running_api_server(tmp_path / "api") as api:
        yield api


@pytest.fixture
async def plane(database_url: str, tmp_path: Path, api: ApiServer) -> AsyncIterator[AccessPlane]:
    async with access_plane(database_url, tmp_path, api) as plane:
        yield plane


@pytest.fixture
async def acme(plane: AccessPlane) -> Tenant:
    return await plane.tenant("Acme")


def kubernetes(access: sessions_pb2.Access) -> Kubernetes:
    """As the SDK makes it, but for the gateway, which is not here."""
    names = ("token", "expires_at", "server", "ca", "namespace")

    class Gateway:
        def post(self, path: str, body: Any) -> Any:
            return {name: getattr(access, name) for name in names}

    return Kubernetes(Clusters(Gateway()), "cluster-1")  # type: ignore[arg-type]  # a stub


async def run(access: sessions_pb2.Access, command: str, typed: bytes = b"") -> tuple[int, bytes]:
    """Exit code and output of a command that is told something."""
    said = bytearray()

    async def sink(channel: int, data: bytes) -> None:
        assert channel == STDOUT
        said.extend(data)

    async with executing(kubernetes(access), "p", "c", [command], stdin=bool(typed)) as running:
        running_out = asyncio.create_task(running.run(sink))
        if typed:
            await running.send(typed)
            await running.resize(80, 24)
            await running.end_input()
        return await running_out, bytes(said)


async def test_input_output_and_exit_code(acme: Tenant, api: ApiServer) -> None:
    access = await acme.access()
    assert await run(access, "exit") == (7, b"ready\n")
    big = bytes(range(256)) * 300
    assert await run(access, "cat", b"hello") == (0, b"ready\nhello")
    assert b'\x04{"Width": 80, "Height": 24}\xff\x00' in api.typed
    query = api.heard[-1][1].target.partition("?")[2].split("&")
    assert query == [
        "container=c", "stdin=true", "stdout=true", "stderr=true", "tty=false", "command=cat",
    ]  # fmt: skip
    code, said = await run(access, "cat", big[:30_000])
    assert (code, said.removeprefix(b"ready\n")) == (0, big[:30_000])


async def test_a_refusal_says_why(plane: AccessPlane, acme: Tenant) -> None:
    access = await acme.access()
    with pytest.raises(WindlassError, match="no such container") as caught:
        await run(access, "refuse")
    assert caught.value.status == 400
    other = await plane.tenant("Bolt")
    access.namespace = other.namespace
    with pytest.raises(WindlassError, match="is forbidden") as caught:
        await run(access, "cat")
    assert caught.value.status == 403


async def test_a_cut_is_no_end(plane: AccessPlane, acme: Tenant) -> None:
    access = await acme.access()

    async def sink(channel: int, data: bytes) -> None:
        assert data == b"ready\n"

    async with executing(kubernetes(access), "p", "c", ["wait"], stdin=True) as running:
        ending = asyncio.create_task(running.run(sink))
        await running.send(b"x")
        await until(lambda: plane.api.typed)
        await plane.revoke(acme)
        with pytest.raises((CommandFailed, ConnectionFailed), match="cut"):
            await ending
