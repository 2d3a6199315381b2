"""Tunnels over several replicas: wherever the agent's streams end, connections find it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import grpc
import pytest
import sqlalchemy as sa
from tests.integration.tunnel.test_tunnel import raises, rest_of, stalls
from tests.support.fakes.stub_upstream import StubUpstream, running_upstream
from tests.support.processes.balancer import running_balancer
from tests.support.processes.cut_line import CutLine
from tests.support.processes.windlass import free_port
from tests.support.services.tunnel_plane import (
    UPGRADE,
    Replica,
    TunnelAgent,
    access_to,
    ask,
    kubernetes,
    request,
    running_replica,
    start_agent,
)
from tests.support.waiting import soon, until

from windlass.core.errors import AppError, FailedPrecondition
from windlass.gateway.inference.engines.tunnel import connect
from windlass.sessions.listener.certificates import own_certificate
from windlass.sessions.tunnel import pending_dials
from windlass.sessions.tunnel.replicas import LEASE_SECONDS, RENEW_SECONDS
from windlass.sessions.tunnel.tables import replicas
from windlass.tunnel.byte_stream import ByteStream
from windlass.tunnel.lanes import CarryStub, Lanes
from windlass_agent.control_plane.connection import open_channel
from windlass_agent.tunnel import tunnel as tunnel_module


@dataclass
class Site:
    one: Replica
    two: Replica
    api: StubUpstream
    stack: contextlib.AsyncExitStack

    async def agent(self, address: str, *, bulk: str = "") -> TunnelAgent:
        """One whose control stream goes to `address`, and its connections to `bulk`."""
        enrolled = await self.one.register("east")
        agent = start_agent(enrolled, address, access_to(self.api))
        self.stack.push_async_callback(agent.stop)
        if bulk:
            opened: list[str] = []

            def channel() -> grpc.aio.Channel:
                opened.append("")
                return open_channel(bulk if len(opened) > 1 else address)

            agent.control.open_channel = channel  # type: ignore[method-assign]  # a way that changes
        await until(lambda: self.held(agent))
        return agent

    def held(self, agent: TunnelAgent) -> list[Replica]:
        """The replicas at which the agent's control stream ends."""
        return [
            replica for replica in (self.one, self.two) if replica.tunnels.holds(agent.cluster_id)
        ]


@pytest.fixture
async def site(database_url: str, tmp_path: Path) -> AsyncIterator[Site]:
    async with contextlib.AsyncExitStack() as stack:
        api = await stack.enter_async_context(running_upstream(tmp_path / "tls"))
        one = await stack.enter_async_context(running_replica(database_url, tmp_path, name="one"))
        two = await stack.enter_async_context(running_replica(database_url, tmp_path, name="two"))
        yield Site(one, two, api, stack)


async def upgraded(replica: Replica, agent: TunnelAgent, target: str = "/exec") -> ByteStream:
    stream = await replica.connect(agent.cluster_id)
    await stream.write(request(target, *UPGRADE))
    answer = b""
    while b"\r\n\r\n" not in answer or (target == "/exec" and not answer.endswith(b"hello")):
        answer += await stream.read()
    return stream


async def exchange(replica: Replica, agent: TunnelAgent) -> None:
    """All that a connection does: a request, raw bytes, and the end of each side."""
    answer = await ask(await replica.connect(agent.cluster_id), "/list?bytes=3000000")
    assert answer.count(b"x") == 3_000_000
    shell = await upgraded(replica, agent)
    await shell.write(b"y" * 100_000)
    echoed = b""
    while len(echoed) < 100_000:
        echoed += await shell.read()
    await shell.write(b"bye")
    assert await rest_of(shell) == b"bye"
    await shell.close()


# Where the control stream ends, where connections are dialled back, where clients ask.
PATHS = {
    "forwarded": (0, 0, 1),
    "brought to the other": (0, 1, 0),
    "brought to who asked": (0, 1, 1),
}


@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS)
async def test_connections_find_their_way(site: Site, path: tuple[int, int, int]) -> None:
    replicas = (site.one, site.two)
    listen, bulk, asking = (replicas[number] for number in path)
    agent = await site.agent(listen.address, bulk=bulk.address)
    await exchange(asking, agent)
    stream = await asking.connect(agent.cluster_id)
    await stream.write(request("/log"))
    await until(lambda: site.api.followers)
    stream.abort()
    await until(lambda: not site.api.followers)


def _carried(stub: CarryStub, metadata: Any) -> tuple[Any, Callable[[], Awaitable[object]]]:
    call = stub.Carry(metadata=metadata)

    async def close() -> None:
        call.cancel()

    return call, close


@pytest.mark.parametrize(
    ("path", "relayed"),
    [((0, 0, 0), False), *zip(PATHS.values(), (True, True, False), strict=True)],
    ids=["direct", *PATHS],
)
async def test_a_gateway_is_told_whether_bytes_go_through_another_replica(
    site: Site, tmp_path: Path, path: tuple[int, int, int], *, relayed: bool
) -> None:
    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    replicas = (site.one, site.two)
    listen, bulk, asking = (replicas[number] for number in path)
    agent = await site.agent(listen.address, bulk=bulk.address)
    async with (
        await asyncio.start_unix_server(serve, tmp_path / "engine.sock"),
        grpc.aio.insecure_channel(asking.address) as channel,
    ):
        agent.endpoints["engine-1"] = f"unix://{tmp_path}/engine.sock"
        token = (("windlass-service", asking.gateway.sign_service()),)
        lanes = Lanes(partial(_carried, CarryStub(channel), token))
        address = urlsplit(f"tunnel://{agent.cluster_id}/engine-1")
        connection, is_relayed = await connect(lanes, address)
        assert is_relayed == relayed
        connection.close()
        await lanes.close()


@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS)
async def test_refusals_find_their_way(site: Site, path: tuple[int, int, int]) -> None:
    replicas = (site.one, site.two)
    listen, bulk, asking = (replicas[number] for number in path)
    agent = await site.agent(listen.address, bulk=bulk.address)
    with pytest.raises(FailedPrecondition, match="kube-system") as caught:
        await asking.connect(agent.cluster_id, kubernetes("kube-system"))
    assert caught.value.reason == "target_refused"


@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS)
async def test_a_stall_and_its_end_find_their_way(site: Site, path: tuple[int, int, int]) -> None:
    replicas = (site.one, site.two)
    listen, bulk, asking = (replicas[number] for number in path)
    agent = await site.agent(listen.address, bulk=bulk.address)
    shell = await upgraded(asking, agent, "/deaf")

    async def fill() -> None:
        while True:
            await shell.write(b"z" * 65536)

    filling = asyncio.create_task(fill())
    assert await stalls(filling, shell) < 32 * 2**20
    shell.abort()
    with pytest.raises(AppError):
        await filling
    await until(lambda: not site.api.open)


async def test_unregistering_ends_what_runs_through_several(site: Site) -> None:
    agent = await site.agent(site.one.address, bulk=site.two.address)
    shells = [await upgraded(replica, agent) for replica in (site.one, site.two)]
    await site.one.unregister(agent.cluster_id)
    async with soon(1):
        for shell in shells:
            await raises("cluster_unreachable", shell)


async def test_replicas_on_other_machines_are_reached_over_tls(
    database_url: str, tmp_path: Path
) -> None:
    certificate, key, ca = own_certificate(tmp_path / "tls", {"127.0.0.1"})

    def settings() -> dict[str, Any]:
        address = f"127.0.0.1:{free_port()}"
        tls = {"certificate": certificate, "key": key}
        return {
            "grpc": {"listen": address, "tls": tls, "peer_ca": ca},
            "sessions": {"advertise": f"grpcs://{address}"},
        }

    async with contextlib.AsyncExitStack() as stack:
        api = await stack.enter_async_context(running_upstream(tmp_path / "tls"))
        one, two = [
            await stack.enter_async_context(
                running_replica(database_url, tmp_path, name=name, settings=settings())
            )
            for name in ("one", "two")
        ]
        agent = await Site(one, two, api, stack).agent(one.address)
        await exchange(two, agent)
        route = await two.tunnels.route(agent.cluster_id)
        assert route is not None
        assert route.address.startswith("grpcs://")


async def test_a_replica_alone_announces_itself_rarely(database_url: str, tmp_path: Path) -> None:
    async def leases() -> list[float]:
        """Seconds left of each replica's lease."""
        left = sa.func.extract("epoch", replicas.c.lease_until - sa.func.now())
        async with one.app.database.autocommit() as connection:
            return [float(row[0]) for row in await connection.execute(sa.select(left))]

    async with contextlib.AsyncExitStack() as stack:
        one = await stack.enter_async_context(running_replica(database_url, tmp_path, name="one"))
        await until(leases, holds=lambda found: found and min(found) > LEASE_SECONDS)
        two = await stack.enter_async_context(running_replica(database_url, tmp_path, name="two"))
        # At once, since `two` has said that it is there.
        await until(lambda: one.tunnels.has_others and two.tunnels.has_others, RENEW_SECONDS * 2)
        await until(leases, holds=lambda found: len(found) == 2 and max(found) <= LEASE_SECONDS)


async def test_a_replica_that_stops_sends_its_agents_away_first(
    database_url: str, tmp_path: Path
) -> None:
    async with contextlib.AsyncExitStack() as stack:
        api = await stack.enter_async_context(running_upstream(tmp_path / "tls"))
        one = await stack.enter_async_context(running_replica(database_url, tmp_path, name="one"))
        leaving = contextlib.AsyncExitStack()
        two = await leaving.enter_async_context(running_replica(database_url, tmp_path, name="two"))
        async with running_balancer(two.socket) as balancer:
            site = Site(one, two, api, stack)
            agent = await site.agent(balancer.address)
            assert site.held(agent) == [two]
            balancer.servers = [two.socket, one.socket]
            # For `one` to be known as another by then.
            await until(lambda: two.tunnels.has_others)
            asking = asyncio.create_task(keep_asking(one, agent))
            await leaving.aclose()
            assert site.held(agent) == [one]
            asking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asking
            await agent.stop()


async def test_connections_that_are_cut_say_so_and_others_follow(site: Site) -> None:
    async with running_balancer(site.one.socket) as balancer:
        agent = await site.agent(balancer.address)
        shell = await upgraded(site.two, agent)
        log = await site.one.connect(agent.cluster_id)
        await log.write(request("/log"))
        await until(lambda: site.api.followers)
        site.api.say(b"a line\n")
        await log.read()
        await balancer.cut()
        for stream in (shell, log):
            await raises("cluster_unreachable", stream)
        # They wait for the agent to come again, on both replicas.
        for replica in (site.one, site.two):
            answer = await ask(await replica.connect(agent.cluster_id), "/version")
            assert answer.startswith(b"HTTP/1.1 200")
        await until(lambda: not site.api.followers)
        await agent.stop()


async def keep_asking(replica: Replica, agent: TunnelAgent) -> None:
    """Small requests without a pause; raises when one fails."""
    while True:
        answer = await ask(await replica.connect(agent.cluster_id), "/version")
        assert answer.startswith(b"HTTP/1.1 200")


@pytest.fixture
def line(site: Site) -> Iterator[CutLine]:
    made = CutLine(site.one.socket)
    made.start()
    yield made
    made.stop()


async def test_an_agent_behind_a_dead_line_comes_again(
    site: Site, line: CutLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pending_dials, "HEARTBEAT_SECONDS", 0.2)
    monkeypatch.setattr(tunnel_module, "SILENT_SECONDS", 1.0)
    agent = await site.agent(line.address)
    shell = await upgraded(site.two, agent)
    way: list[Callable[[], grpc.aio.Channel]] = [lambda: open_channel(site.two.address)]
    line.cut()
    agent.control.open_channel = lambda: way[0]()  # type: ignore[method-assign]  # moves
    # Its next control stream ends elsewhere, which fences the one that nobody heard of.
    await until(lambda: site.held(agent) == [site.two])
    answer = await ask(await site.one.connect(agent.cluster_id), "/version")
    assert answer.startswith(b"HTTP/1.1 200")
    shell.abort()
    line.mend()
