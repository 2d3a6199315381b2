"""Tunnels over two server processes, killed one after the other; the agent behind a balancer."""

import asyncio
import base64
import contextlib
import os
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.support.environments import postgres
from tests.support.fakes.stub_upstream import StubUpstream, running_upstream
from tests.support.processes.balancer import Balancer, running_balancer
from tests.support.processes.windlass import Windlass, free_port, make_single, running
from tests.support.services.tunnel_plane import (
    UPGRADE,
    Replica,
    TunnelAgent,
    access_to,
    ask,
    request,
    running_replica,
    start_agent,
)
from tests.support.waiting import PATIENCE, until

from windlass.core.app import runtime_dir
from windlass.core.errors import AppError
from windlass.tunnel.byte_stream import ByteStream

pytestmark = pytest.mark.faults

MASTER_KEY = {"key": base64.b64encode(os.urandom(32)).decode()}


def server(data: Path, url: str) -> Windlass:
    """A whole server but for an agent, on the common database."""
    settings = {
        "agent": {"enabled": False},
        "master_key": MASTER_KEY,
        "database": {"url": url.replace("+psycopg", "")},
        "sessions": {"kubernetes": {"listen": f"127.0.0.1:{free_port()}"}},
    }
    return make_single(data, settings)


@pytest.fixture
def servers(postgres_url: str) -> Iterator[tuple[str, Windlass, Windlass]]:
    with postgres.reachable_folder() as folder, postgres.fresh_database(postgres_url) as url:
        one, two = server(folder / "one", url), server(folder / "two", url)
        with running(one):
            # Only the first needs to bring the schema up.
            two.configs["all"].write_text(one_more_key(two.configs["all"].read_text()))
            with running(two):
                yield url, one, two


def one_more_key(document: str) -> str:
    return document.replace("database:\n", "database:\n  migrate: false\n")


@dataclass
class Site:
    """Two servers, an agent that reaches either, and a client that is a replica of its own."""

    servers: tuple[Windlass, Windlass]
    balancer: Balancer
    client: Replica
    agent: TunnelAgent
    api: StubUpstream

    async def upgraded(self) -> ByteStream:
        stream = await self.client.connect(self.agent.cluster_id)
        await stream.write(request("/exec", *UPGRADE))
        answer = b""
        while not answer.endswith(b"hello"):
            answer += await stream.read()
        return stream

    async def holder(self) -> Windlass:
        """The server at which the agent's control stream ends."""
        route = await self.client.tunnels.route(self.agent.cluster_id)
        assert route is not None
        for windlass in self.servers:
            if str(windlass.data) in route.address:
                return windlass
        raise AssertionError(route)


@pytest.fixture
async def site(servers: tuple[str, Windlass, Windlass], tmp_path: Path) -> AsyncIterator[Site]:
    url, one, two = servers
    async with contextlib.AsyncExitStack() as stack:
        sockets = [runtime_dir(windlass.data) / "windlass.sock" for windlass in (one, two)]
        balancer = await stack.enter_async_context(running_balancer(*sockets))
        api = await stack.enter_async_context(running_upstream(tmp_path / "tls"))
        replica = running_replica(url, tmp_path / "client", settings={"master_key": MASTER_KEY})
        client = await stack.enter_async_context(replica)
        enrolled = await client.register("east")
        agent = start_agent(enrolled, balancer.address, access_to(api))
        stack.push_async_callback(agent.stop)
        site = Site((one, two), balancer, client, agent, api)
        await until(lambda: client.tunnels.route(agent.cluster_id))
        yield site


async def test_either_server_may_be_killed(site: Site) -> None:
    for _ in range(2):
        shell = await site.upgraded()
        await shell.write(b"here")
        assert await shell.read() == b"here"
        dead = await site.holder()
        # Its bytes may well run through the other: the agent's connections are balanced.
        runs_there = str(dead.data) in str(site.balancer.placed[-1])
        await asyncio.to_thread(dead.kill)
        if runs_there:
            with pytest.raises(AppError) as caught:
                await asyncio.wait_for(shell.read(), PATIENCE)
            assert caught.value.reason == "cluster_unreachable"
        else:
            await shell.write(b"still here")
            assert await shell.read() == b"still here"
            shell.abort()
        # The next connection waits until the agent is back at the other, and does not fail.
        answer = await ask(await site.client.connect(site.agent.cluster_id), "/version")
        assert answer.startswith(b"HTTP/1.1 200")
        assert await site.holder() is not dead
        await asyncio.to_thread(dead.start)
        await asyncio.to_thread(dead.wait_ready)


@pytest.mark.long
async def test_either_server_may_stop_and_small_requests_never_notice(site: Site) -> None:
    async def keep_asking() -> None:
        while True:
            answer = await ask(await site.client.connect(site.agent.cluster_id), "/version")
            assert answer.startswith(b"HTTP/1.1 200")
            await asyncio.sleep(0.05)

    asking = asyncio.create_task(keep_asking())
    for _ in range(2):
        leaving = await site.holder()
        await asyncio.to_thread(leaving.stop)
        assert await site.holder() is not leaving
        await asyncio.to_thread(leaving.start)
        await asyncio.to_thread(leaving.wait_ready)
    assert not asking.done()
    asking.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await asking
