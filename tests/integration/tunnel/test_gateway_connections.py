"""Connections of gateways to workloads, over a call that they share, and as the release before."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

import grpc
import pytest
from tests.support.services.tunnel_plane import (
    Replica,
    TunnelAgent,
    running_replica,
    start_agent,
)
from tests.support.waiting import until

from windlass.api.sessions.v1.sessions_pb2 import Chunk, Target
from windlass.api.sessions.v1.sessions_pb2_grpc import SessionsInternalServiceStub
from windlass.core.rpc.tokens import TokenAuthority
from windlass.gateway.inference.engines import tunnel
from windlass.tunnel.byte_stream import StreamCall
from windlass.tunnel.lanes import CarryStub, Lanes

ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"


@dataclass
class Site:
    """A gateway's lanes, and an engine behind the agent that answers each request."""

    replica: Replica
    agent: TunnelAgent
    channel: grpc.aio.Channel
    open: set[asyncio.StreamWriter]

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        return (("windlass-service", self.replica.gateway.sign_service()),)

    def start(self) -> tuple[StreamCall, Callable[[], Awaitable[object]]]:
        """A call of `Carry`."""
        call = CarryStub(self.channel).Carry(metadata=self.metadata)

        async def close() -> None:
            call.cancel()

        return call, close

    def address(self, name: str = "engine") -> SplitResult:
        return urlsplit(f"tunnel://{self.agent.cluster_id}/{name}")

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open.add(writer)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while await reader.readuntil(b"\r\n\r\n"):
                writer.write(ANSWER)
        self.open.discard(writer)
        writer.close()


@pytest.fixture
async def site(database_url: str, tmp_path: Path) -> AsyncIterator[Site]:
    async with contextlib.AsyncExitStack() as stack:
        replica = await stack.enter_async_context(running_replica(database_url, tmp_path))
        agent = start_agent(await replica.register("east"), replica.address)
        stack.push_async_callback(agent.stop)
        channel = await stack.enter_async_context(grpc.aio.insecure_channel(replica.address))
        made = Site(replica, agent, channel, set())
        path = tmp_path / "engine.sock"
        await stack.enter_async_context(await asyncio.start_unix_server(made.serve, path))
        agent.endpoints["engine"] = f"unix://{path}"
        await until(lambda: replica.tunnels.holds(agent.cluster_id))
        yield made


async def test_connections_share_a_call_and_end_by_themselves(site: Site) -> None:
    calls = 0

    def start() -> tuple[StreamCall, Callable[[], Awaitable[object]]]:
        nonlocal calls
        calls += 1
        return site.start()

    lanes = Lanes(start)
    connections = [(await tunnel.connect(lanes, site.address()))[0] for _ in range(3)]
    for _ in range(2):
        for connection in connections:
            await connection.exchange(b"POST / HTTP/1.1\r\n\r\n")
            assert await connection.read() == b"{}"
            connection.rest()
    assert calls == 1
    connections[0].close()
    await until(lambda: len(site.open) == 2)
    await connections[1].exchange(b"POST / HTTP/1.1\r\n\r\n")
    await lanes.close()
    await until(lambda: not site.open)


@pytest.mark.parametrize("kind", ["gateway", "tuning", "service"])
async def test_only_gateways_and_the_tuning_service_connect(site: Site, kind: str) -> None:
    ours = TokenAuthority(site.replica.app.database, kind=kind, name="test")
    await ours.rotate()
    call = CarryStub(site.channel).Carry(metadata=(("windlass-service", ours.sign_service()),))
    if kind == "service":
        assert await call.code() is grpc.StatusCode.UNAUTHENTICATED
        return

    async def close() -> None:
        call.cancel()

    lanes = Lanes(lambda: (call, close))
    connection, _ = await tunnel.connect(lanes, site.address())
    await connection.exchange(b"POST / HTTP/1.1\r\n\r\n")
    assert await connection.read() == b"{}"
    await lanes.close()


async def test_a_refusal_is_told_and_harms_no_other(site: Site) -> None:
    lanes = Lanes(site.start)
    connection, _ = await tunnel.connect(lanes, site.address())
    with pytest.raises(ConnectionError, match="No workload 'nobody' runs here"):
        await tunnel.connect(lanes, site.address("nobody"))
    await connection.exchange(b"POST / HTTP/1.1\r\n\r\n")
    assert await connection.read() == b"{}"
    await lanes.close()


async def test_a_gateway_of_the_release_before_has_a_call_for_each(site: Site) -> None:
    call = SessionsInternalServiceStub(site.channel).Connect(metadata=site.metadata)
    target = Target(workload_id="engine")
    await call.write(Chunk(cluster_id=site.agent.cluster_id, target=target))
    assert await call.read() == Chunk(connection_id="engine")
    await call.write(Chunk(data=b"POST / HTTP/1.1\r\n\r\n"))
    assert await call.read() == Chunk(data=ANSWER)
    call.cancel()
    await until(lambda: not site.open)
