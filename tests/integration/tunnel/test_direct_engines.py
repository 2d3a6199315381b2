"""A machine's door answers as its tunnel does, and lets in none but gateways; else the tunnel."""

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from aiohttp import web
from tests.integration.tunnel.test_gateway_connections import Site, site
from tests.integration.tunnel.test_sockets import looks_for_loss
from tests.support.waiting import until

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.gateway.inference.engines import (
    DirectWays,
    EngineBroken,
    EngineConnection,
    EngineConnectionPool,
)
from windlass.gateway.inference.engines import pool as pools
from windlass.gateway.inference.engines.aborting import abort
from windlass.gateway.inference.routes import DirectAddress
from windlass.inference_api.routes import ABORT, CHAT
from windlass.metrics.gateway import ENGINE_CONNECTIONS
from windlass.tunnel.authority import Authority, show
from windlass.tunnel.lanes import Lanes
from windlass_agent.tunnel.direct import MachineDoor

__all__ = ["site"]
ENGINE = "eng-1"
WAYS = ("direct", "tunnel")


@dataclass
class StubEngine:
    """What an engine does with requests, and nothing else of it."""

    asked: list[web.Request] = field(default_factory=list)
    aborted: list[str] = field(default_factory=list)
    open: int = 0

    async def chat(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.asked.append(request)
        if "stream" not in body:
            return web.json_response(body, status=body.get("status", 200))
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        self.open += 1
        try:
            for number in range(body["stream"]):
                await response.write(f"data: {number}\n\n".encode())
            if body.get("waits"):
                await asyncio.Event().wait()
            if body.get("breaks"):
                assert request.transport is not None
                request.transport.abort()
        finally:
            self.open -= 1
        return response

    async def abort(self, request: web.Request) -> web.Response:
        self.aborted += (await request.json())["request_ids"]
        return web.Response()


@dataclass
class Stage:
    """A gateway's two ways to an engine behind an agent."""

    site: Site
    engine: StubEngine
    door: MachineDoor
    told: pb.DirectEndpoint
    authority: Authority
    lanes: Lanes

    @property
    def where(self) -> DirectAddress:
        return DirectAddress(self.told.address, self.told.certificate_digest)

    def pool(
        self, *, direct: DirectAddress | None = None, authority: Authority | None = None
    ) -> EngineConnectionPool:
        directly = DirectWays(authority or self.authority)
        pool = EngineConnectionPool(self.site.address(ENGINE).geturl(), self.lanes, directly)
        pool.direct = direct
        return pool

    def by(self, way: str) -> EngineConnectionPool:
        return self.pool(direct=self.where if way == "direct" else None)


def connections(kind: str) -> float:
    value: float = ENGINE_CONNECTIONS.labels(kind)._value.get()
    return value


@pytest.fixture
async def stage(site: Site, tmp_path: Path) -> AsyncIterator[Stage]:
    engine, app = StubEngine(), web.Application(client_max_size=2**22)
    app.router.add_post(CHAT, engine.chat)
    app.router.add_post(ABORT, engine.abort)
    async with contextlib.AsyncExitStack() as stack:
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        await web.UnixSite(runner, str(tmp_path / "real.sock")).start()
        site.agent.endpoints[ENGINE] = f"unix://{tmp_path / 'real.sock'}"
        door, authority = MachineDoor("127.0.0.1:0"), Authority.make()
        told = await door.open()
        stack.push_async_callback(door.close)
        door.serve(lambda name: site.agent.endpoints.get(name, ""))
        door.trust(authority.certificate)
        lanes = Lanes(site.start)
        stack.push_async_callback(lanes.close)
        yield Stage(site, engine, door, told, authority, lanes)


async def send(
    pool: EngineConnectionPool, request_id: str = "req_1", **body: object
) -> EngineConnection:
    return await pool.send(CHAT, json.dumps(body).encode(), request_id, b"traceparent: 00-a\r\n")


@pytest.mark.parametrize("way", WAYS)
async def test_both_ways_answer_alike(stage: Stage, way: str) -> None:
    pool, before = stage.by(way), connections(way)
    for status in (200, 400, 503):
        answer = await send(pool, text="ä" * 200_000, status=status)
        assert (answer.status, answer.content_type.split(";")[0]) == (status, "application/json")
        assert json.loads(await answer.read()) == {"text": "ä" * 200_000, "status": status}
        pool.done(answer)
    assert stage.engine.asked[-1].headers["x-request-id"] == "req_1"
    assert stage.engine.asked[-1].headers["traceparent"] == "00-a"
    streamed = await send(pool, stream=1000)
    assert streamed.content_type == "text/event-stream"
    assert (await streamed.read()).count(b"data:") == 1000
    pool.done(streamed)
    # All over one connection, which is kept.
    assert connections(way) == before + 1
    cut = await send(pool, stream=1, breaks=True)
    with pytest.raises(EngineBroken):
        await cut.read()
    pool.done(cut)


async def test_the_door_counts_what_a_planned_stop_waits_for(stage: Stage) -> None:
    pool = stage.by("direct")
    assert stage.door.connections == 0
    pool.done(await send(pool, text="whole", status=200))
    assert stage.door.connections == 1
    pool.close()
    await until(lambda: not stage.door.connections)


@pytest.mark.parametrize("way", WAYS)
async def test_both_ways_end_what_nobody_waits_for(stage: Stage, way: str) -> None:
    pool = stage.by(way)
    streaming = await send(pool, stream=1, waits=True)
    assert await streaming.readany() == b"data: 0\n\n"
    await abort(pool, CHAT, "req_7")
    assert stage.engine.aborted
    assert "req_7" in stage.engine.aborted[0]
    assert stage.engine.open == 1
    pool.done(streaming)
    await until(lambda: not stage.engine.open)


async def test_another_certificate_than_the_agent_told_is_refused(stage: Stage) -> None:
    """As by who has taken the address, and would read what is asked."""
    heard = bytearray()

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1000):
            heard.extend(data)
        writer.close()

    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    show(tls, *Authority.make().issue("engines"))
    thief = await asyncio.start_server(listen, "127.0.0.1", 0, ssl=tls)
    host, port = thief.sockets[0].getsockname()
    pool = stage.pool(direct=DirectAddress(f"{host}:{port}", stage.told.certificate_digest))
    directly, tunnelled = connections("direct"), connections("tunnel")
    answer = await send(pool, text="secret")
    assert json.loads(await answer.read()) == {"text": "secret"}
    assert (connections("direct"), connections("tunnel")) == (directly, tunnelled + 1)
    assert not heard
    thief.close()


async def test_strangers_are_not_let_in_and_nothing_of_a_request_is_lost(stage: Stage) -> None:
    """Whose own authority is another, such as a gateway's of another installation."""
    pool, before = stage.pool(direct=stage.where, authority=Authority.make()), connections("tunnel")
    answer = await send(pool, text="asked")
    assert json.loads(await answer.read()) == {"text": "asked"}
    assert connections("tunnel") == before + 1
    assert len(stage.engine.asked) == 1
    # Nor without any certificate, whatever is asked.
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    host, _, port = stage.told.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port), ssl=tls)
    writer.write(f"POST {CHAT} HTTP/1.1\r\nhost: {ENGINE}\r\n\r\n".encode())
    with contextlib.suppress(ConnectionError, ssl.SSLError):
        assert not await reader.read()
    assert len(stage.engine.asked) == 1


async def test_before_an_authority_is_named_nobody_is_let_in(stage: Stage) -> None:
    door = MachineDoor("127.0.0.1:0")
    told = await door.open()
    door.serve(lambda name: stage.site.agent.endpoints.get(name, ""))
    where = DirectAddress(told.address, told.certificate_digest)
    ways = DirectWays(stage.authority)
    made = asyncio.get_running_loop()
    with pytest.raises(OSError):
        await ways.connect(where, ENGINE, lambda: EngineConnection(made))
    door.trust(stage.authority.certificate)
    (await ways.connect(where, ENGINE, lambda: EngineConnection(made))).close()
    with pytest.raises(ConnectionError, match="not behind this door"):
        await ways.connect(where, "eng-other", lambda: EngineConnection(made))
    await door.close()


async def test_a_machine_that_vanishes_behind_its_door_is_looked_for(stage: Stage) -> None:
    connection = await DirectWays(stage.authority).connect(
        stage.where, ENGINE, lambda: EngineConnection(asyncio.get_running_loop())
    )
    assert looks_for_loss(connection._transport) == (1, 15, 5, 3, 30_000)
    connection.close()


async def test_nothing_but_an_engines_routes_is_behind_the_door(stage: Stage) -> None:
    connection = await DirectWays(stage.authority).connect(
        stage.where, ENGINE, lambda: EngineConnection(asyncio.get_running_loop())
    )
    for path in ("/metrics", "/v1/load_lora_adapter", "/sleep", "/load"):
        head = f"POST {path} HTTP/1.1\r\nhost: {ENGINE}\r\ncontent-length: 0\r\n\r\n"
        await connection.exchange(head.encode())
        assert json.loads(await connection.read())["error"]["code"] == "unknown_url"
        connection.rest()
    connection.close()


async def test_a_door_that_does_not_open_is_left_for_a_while(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    # However busy this machine is.
    monkeypatch.setattr(pools, "NEAR_SECONDS", 60.0)
    # Of an agent's life before.
    pool = stage.pool(direct=DirectAddress(stage.told.address, b"x" * 32))
    answer = await send(pool, text="asked")
    assert pool.distance == 1
    pool.done(answer)
    pool.close()
    before = connections("direct")
    with monkeypatch.context() as patch:
        patch.setattr(DirectWays, "connect", fails)
        assert await pool.reachable(), "it is not tried for each request"
    loop = asyncio.get_running_loop()
    now = loop.time
    with monkeypatch.context() as patch:
        patch.setattr(DirectWays, "connect", fails)
        patch.setattr(loop, "time", lambda: now() + 31)
        with pytest.raises(LookupError):
            await pool.reachable()
    # Another door, as of the agent's next life, is tried at once.
    pool.direct = stage.where
    assert await pool.reachable()
    assert connections("direct") == before + 1
    assert pool.distance == 0, "nearer than by the tunnel"


async def fails(*_: object) -> None:
    raise LookupError


async def test_a_request_that_has_gone_out_is_not_sent_again_by_the_tunnel(stage: Stage) -> None:
    pool = stage.by("direct")
    streaming = await send(pool, stream=1, waits=True)
    await streaming.readany()
    await stage.door.close()
    with pytest.raises(EngineBroken):
        await streaming.read()
    pool.done(streaming)
    assert len(stage.engine.asked) == 1
    # The next one finds its way.
    answer = await send(pool, text="again")
    assert json.loads(await answer.read()) == {"text": "again"}


async def test_a_door_whose_address_is_pinned_no_longer_is_left_at_once(stage: Stage) -> None:
    pool = stage.by("direct")
    answer = await send(pool, text="asked")
    await answer.read()
    pool.done(answer)
    before = connections("direct")
    again = await send(pool, text="again")
    assert again is answer, "it rests between two requests"
    await again.read()
    pool.done(again)
    pool.direct = None
    other = await send(pool, text="later")
    assert json.loads(await other.read()) == {"text": "later"}
    assert other is not answer
    assert connections("direct") == before
    pool.done(other)
    pool.close()
