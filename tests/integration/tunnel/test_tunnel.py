"""Connections through the tunnel, with a stand-in for the API server at its end."""

import asyncio
import contextlib
import hashlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import sqlalchemy as sa
from tests.support.fakes.stub_upstream import StubUpstream, running_upstream
from tests.support.services.clusters import running_control_plane
from tests.support.services.tunnel_plane import (
    NAMESPACE,
    TOKEN,
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
from tests.support.waiting import PATIENCE, settled, soon, stays, until

from windlass.api.sessions.v1.sessions_pb2 import ACCESS_LEVEL_EDITOR, Target
from windlass.core.errors import AppError, FailedPrecondition, Unavailable
from windlass.core.rpc.auth import digest
from windlass.sessions.tunnel.credential_watch import CredentialWatch
from windlass.tunnel.byte_stream import ByteStream
from windlass_agent.tunnel import tunnel as tunnel_module


@dataclass
class Site:
    replica: Replica
    agent: TunnelAgent
    api: StubUpstream

    async def connect(self, target: Target | None = None) -> ByteStream:
        return await self.replica.connect(self.agent.cluster_id, target)

    async def get(self, target: str) -> bytes:
        return await ask(await self.connect(), target)

    async def upgraded(self, target: str = "/exec") -> ByteStream:
        """A connection behind a 101, and the greeting behind that."""
        stream = await self.connect()
        await stream.write(request(target, *UPGRADE))
        answer = await stream.read()
        assert answer.startswith(b"HTTP/1.1 101")
        if target == "/exec":
            while not answer.endswith(b"hello"):
                answer += await stream.read()
        return stream


@contextlib.asynccontextmanager
async def opened(url: str, data: Path, tls: Path | None) -> AsyncIterator[Site]:
    """A replica, and an agent whose control stream ends there."""
    async with contextlib.AsyncExitStack() as stack:
        api = await stack.enter_async_context(running_upstream(tls))
        replica = await stack.enter_async_context(running_replica(url, data))
        agent = start_agent(await replica.register("east"), replica.address, access_to(api))
        stack.push_async_callback(agent.stop)
        await until(lambda: replica.tunnels.holds(agent.cluster_id))
        yield Site(replica, agent, api)


@pytest.fixture
async def site(database_url: str, tmp_path: Path) -> AsyncIterator[Site]:
    async with opened(database_url, tmp_path, tmp_path / "tls") as site:
        yield site


async def raises(reason: str, stream: ByteStream) -> None:
    """The stream was cut, and says why."""
    with pytest.raises(AppError) as caught:
        await rest_of(stream)
    assert caught.value.reason == reason


async def rest_of(stream: ByteStream) -> bytes:
    """The bytes up to an orderly end."""
    data = b""
    async with asyncio.timeout(PATIENCE):
        while more := await stream.read():
            data += more
    return data


async def test_a_request_goes_out_as_the_namespace_s_account(site: Site) -> None:
    answer = await site.get("/api/v1/namespaces/windlass-proj-a/pods?limit=5")
    assert answer.startswith(b"HTTP/1.1 200 OK")
    (asked,) = site.api.asked
    assert asked.target == "/api/v1/namespaces/windlass-proj-a/pods?limit=5"
    assert asked.values("authorization") == [TOKEN]
    viewer = f"system:serviceaccount:{NAMESPACE}:windlass-viewer"
    assert asked.values("impersonate-user") == [viewer]
    assert asked.values("impersonate-extra-windlass-user") == ["ann"]


async def test_an_editor_is_another_account(site: Site) -> None:
    stream = await site.connect(kubernetes(level=ACCESS_LEVEL_EDITOR, user=""))
    await ask(stream, "/version")
    (asked,) = site.api.asked
    editor = f"system:serviceaccount:{NAMESPACE}:windlass-editor"
    assert asked.values("impersonate-user") == [editor]
    assert asked.values("impersonate-extra-windlass-user") == []


async def test_nobody_s_claims_pass_the_agent(site: Site) -> None:
    claims = (
        "Authorization: Bearer stolen",
        "Impersonate-User: admin",
        "Impersonate-Group: system:masters",
        "Impersonate-Extra-Windlass-User: somebody",
        "X-Remote-User: admin",
        "Cookie: session=1",
    )
    stream = await site.connect()
    await stream.write(request("/version", *claims))
    while await stream.read():
        pass
    (asked,) = site.api.asked
    assert asked.values("authorization") == [TOKEN]
    assert asked.values("impersonate-user") == [
        f"system:serviceaccount:{NAMESPACE}:windlass-viewer"
    ]
    assert asked.values("impersonate-extra-windlass-user") == ["ann"]
    for name in ("impersonate-group", "x-remote-user", "cookie"):
        assert not asked.values(name)


async def test_a_second_request_does_not_pass(site: Site) -> None:
    stream = await site.connect()
    await stream.write(request("/version") + request("/secrets"))
    await raises("cluster_unreachable", stream)
    assert "/secrets" not in [asked.target for asked in site.api.asked]


async def test_requests_share_connections_to_the_api_server(site: Site) -> None:
    for _ in range(5):
        await site.get("/list?bytes=100000&chunked=1")
    assert site.api.ever == 1


async def test_a_kept_connection_that_closed_is_replaced(site: Site) -> None:
    await site.get("/version")
    site.api.drop_idle()
    assert (await site.get("/version")).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("query", ["bytes=5000000", "bytes=5000000&chunked=1", "bytes=0"])
async def test_an_answer_comes_whole(site: Site, query: str) -> None:
    answer = await site.get(f"/list?{query}")
    head, _, body = answer.partition(b"\r\n\r\n")
    if b"chunked" in head:
        assert body.endswith(b"\r\n0\r\n\r\n")
        assert body.count(b"x") == 5_000_000
    else:
        assert len(body) == int(query.removeprefix("bytes="))


async def test_a_body_arrives_whole(site: Site) -> None:
    body = bytes(range(256)) * 20_000
    answer = await ask(await site.connect(), "/api/v1/pods", method="POST", body=body)
    said = json.loads(answer.partition(b"\r\n\r\n")[2])
    assert said["body"] == hashlib.sha256(body).hexdigest()


async def test_an_answer_that_comes_before_the_body_is_told(site: Site) -> None:
    stream = await site.connect()
    head = request("/refuse", "Content-Length: 50000000", method="POST")
    sending = asyncio.create_task(stream.write(head + b"y" * 50_000_000))
    answer = b""
    while data := await asyncio.wait_for(stream.read(), PATIENCE):
        answer += data
    assert answer.startswith(b"HTTP/1.1 403")
    stream.abort()
    await asyncio.gather(sending, return_exceptions=True)


async def test_raw_bytes_after_an_upgrade_both_ways(site: Site) -> None:
    stream = await site.upgraded()
    for size in (1, 70_000, 3):
        data = bytes([size % 251]) * size
        await stream.write(data)
        came = b""
        while len(came) < size:
            came += await asyncio.wait_for(stream.read(), PATIENCE)
        assert came == data
    await stream.write(b"bye")
    assert await stream.read() == b"bye"
    assert await stream.read() == b""
    await stream.close()


async def test_what_follows_an_upgrade_that_was_refused_does_not_pass(site: Site) -> None:
    stream = await site.connect()
    await stream.write(request("/refuse", *UPGRADE) + request("/secrets"))
    with contextlib.suppress(AppError):
        while await stream.read():
            pass
    await until(lambda: site.api.open == 0)
    assert [asked.target for asked in site.api.asked] == ["/refuse"]


@pytest.mark.parametrize("target", ["/close", "/cut"])
async def test_an_answer_that_breaks_off_is_no_end(site: Site, target: str) -> None:
    stream = await site.connect()
    await stream.write(request(target))
    await raises("cluster_unreachable", stream)


async def test_each_side_of_a_workload_s_connection_ends_by_itself(
    site: Site, tmp_path: Path
) -> None:
    heard: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"first")
        heard.append(await reader.read())
        writer.write(b"after your end")
        writer.close()

    path = tmp_path / "engine.sock"
    async with await asyncio.start_unix_server(serve, path):
        site.agent.endpoints["engine-1"] = f"unix://{path}"
        stream = await site.connect(Target(workload_id="engine-1"))
        assert await stream.read() == b"first"
        await stream.write(b"mine")
        await stream.close_write()
        assert await stream.read() == b"after your end"
        assert await stream.read() == b""
        assert heard == [b"mine"]


async def test_a_target_that_ends_first_can_still_be_written_to(site: Site, tmp_path: Path) -> None:
    heard = bytearray()
    done = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write_eof()
        heard.extend(await reader.read())
        done.set()
        writer.close()

    path = tmp_path / "engine.sock"
    async with await asyncio.start_unix_server(serve, path):
        site.agent.endpoints["engine-1"] = f"unix://{path}"
        stream = await site.connect(Target(workload_id="engine-1"))
        assert await stream.read() == b""
        await stream.write(b"still here")
        await stream.close_write()
        await asyncio.wait_for(done.wait(), PATIENCE)
        assert heard == b"still here"


@pytest.mark.parametrize(
    "target",
    [
        kubernetes("kube-system"),
        kubernetes("../secrets"),
        kubernetes(level="ACCESS_LEVEL_UNSPECIFIED"),  # type: ignore[arg-type]  # its name
        Target(workload_id="engine-of-nobody"),
        Target(),
    ],
    ids=["namespace", "no name", "no level", "workload", "nothing"],
)
async def test_what_is_not_on_the_list_is_refused(site: Site, target: Target) -> None:
    with pytest.raises(FailedPrecondition) as caught:
        await site.connect(target)
    assert caught.value.reason == "target_refused"
    assert not site.api.ever


async def test_an_api_server_that_is_away_is_refused_with_a_sentence(site: Site) -> None:
    site.agent.endpoints["engine-1"] = "http://127.0.0.1:1"
    with pytest.raises(FailedPrecondition, match="does not answer"):
        await site.connect(Target(workload_id="engine-1"))


async def test_a_cluster_that_never_came_is_unreachable_at_once(site: Site) -> None:
    with pytest.raises(Unavailable) as caught:
        async with soon(2):
            await site.replica.connect("cluster-of-nobody")
    assert caught.value.reason == "cluster_unreachable"


async def test_leaving_closes_the_connection_behind_the_agent(site: Site) -> None:
    stream = await site.connect()
    await stream.write(request("/log"))
    await stream.read()
    await until(lambda: site.api.followers)
    stream.abort()
    await until(lambda: not site.api.open)


async def test_leaving_closes_even_what_the_target_does_not_take(site: Site) -> None:
    stream = await site.upgraded("/deaf")

    async def fill() -> None:
        while True:
            await stream.write(b"z" * 65536)

    filling = asyncio.create_task(fill())
    await stalls(filling, stream)
    stream.abort()
    with pytest.raises(AppError):
        await filling
    await until(lambda: not site.api.open)


async def stalls(filling: "asyncio.Task[None]", stream: ByteStream) -> int:
    """Once a writer has to wait; what it got rid of before."""
    written = await settled(lambda: stream.written)
    assert not filling.done()
    return written


async def test_a_full_window_makes_the_writer_wait(site: Site) -> None:
    stream = await site.upgraded("/deaf")

    async def fill() -> None:
        while True:
            await stream.write(b"z" * 65536)

    filling = asyncio.create_task(fill())
    assert await stalls(filling, stream) < 16 * 2**20
    # Meanwhile others go on.
    assert (await site.get("/version")).startswith(b"HTTP/1.1 200")
    stream.abort()
    await asyncio.gather(filling, return_exceptions=True)


async def test_a_reader_that_stalls_slows_nobody(site: Site) -> None:
    stalled = await site.connect()
    await stalled.write(request("/list?bytes=200000000"))
    await stalled.read()
    answers = await asyncio.gather(*(site.get("/list?bytes=2000000") for _ in range(5)))
    assert all(answer.count(b"x") == 2_000_000 for answer in answers)
    stalled.abort()


async def test_a_thousand_logs_at_once(database_url: str, tmp_path: Path) -> None:
    count = 1000
    # Without TLS, whose two thousand handshakes in this one process are no matter of the tunnel.
    async with opened(database_url, tmp_path, None) as site:
        room = asyncio.Semaphore(100)

        async def one() -> ByteStream:
            async with room:
                return await follow(site)

        streams = await asyncio.gather(*(one() for _ in range(count)))
        await until(lambda: len(site.api.followers) == count)
        for line in (b"first\n", b"second\n"):
            site.api.say(line)
            await asyncio.gather(*(heard(stream, line) for stream in streams))
        for stream in streams:
            stream.abort()
        await until(lambda: not site.api.open)


async def follow(site: Site) -> ByteStream:
    stream = await site.connect()
    await stream.write(request("/log"))
    return stream


async def heard(stream: ByteStream, line: bytes) -> None:
    """Once a line of a log has come, whatever came before."""
    data = b""
    async with asyncio.timeout(60):
        while line not in data:
            data += await stream.read()


async def test_unregistering_ends_every_stream_within_a_second(site: Site) -> None:
    log, shell = await follow(site), await site.upgraded()
    await log.read()
    await site.replica.unregister(site.agent.cluster_id)
    async with soon(1):
        await raises("cluster_unreachable", log)
        await raises("cluster_unreachable", shell)
    await until(lambda: not site.api.open)
    with pytest.raises(Unavailable):
        await site.connect()


async def test_a_new_credential_takes_over_and_nothing_is_cut(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, control = await follow(site), site.agent.control
    await log.read()
    old = digest(control.credential)
    control.use((await control.rotate()).credential)
    # The next heartbeat is enough for the agent to show it.
    await until(lambda: site.replica.tunnels.generation(site.agent.cluster_id) == 2)
    looks = counted_looks(monkeypatch)
    await end_credential(site, old)
    # The first may have begun before.
    await until(lambda: len(looks) == 2)
    site.api.say(b"still here\n")
    await heard(log, b"still here\n")
    log.abort()


async def test_a_credential_that_ends_ends_what_it_opened(site: Site) -> None:
    log = await follow(site)
    await log.read()
    await end_credential(site, digest(site.agent.control.credential))
    async with soon(5):
        await raises("cluster_unreachable", log)


async def end_credential(site: Site, credential: bytes) -> None:
    """As if its time had come."""
    async with site.replica.app.database.begin() as connection:
        await connection.execute(
            sa.text("UPDATE clusters_credentials SET expires_at = now() WHERE digest = :digest"),
            {"digest": credential},
        )


def counted_looks(monkeypatch: pytest.MonkeyPatch) -> list[CredentialWatch]:
    """Names the watch of each look at credentials from now on, once it is over."""
    found: list[CredentialWatch] = []
    look = CredentialWatch._look

    async def counted(watch: CredentialWatch) -> None:
        await look(watch)
        found.append(watch)

    monkeypatch.setattr(CredentialWatch, "_look", counted)
    return found


async def test_a_server_without_tunnels_is_left_in_peace(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tunnel_module, "ABSENT_SECONDS", 0.05)
    async with running_control_plane(database_url, tmp_path) as plane:
        agent = start_agent(await plane.enroll("east"), plane.address)
        await stays(lambda: not agent.task.done(), 0.5)
        await agent.stop()


async def test_another_life_of_the_agent_takes_over(site: Site) -> None:
    log = await follow(site)
    await log.read()
    enrolled = type("Enrolled", (), {})()
    enrolled.cluster_id = site.agent.cluster_id
    enrolled.credential = site.agent.control.metadata[0][1].removeprefix("Bearer ")
    second = start_agent(enrolled, site.replica.address, access_to(site.api))
    try:
        # The first is fenced: it ends, and what ran through it too.
        await asyncio.wait_for(site.agent.task, PATIENCE)
        await raises("cluster_unreachable", log)
        assert (await site.get("/version")).startswith(b"HTTP/1.1 200")
    finally:
        await second.stop()


async def test_an_agent_cannot_take_the_connection_of_another_cluster(site: Site) -> None:
    import grpc

    from windlass.api.sessions.v1.sessions_pb2 import Chunk, Dial, ListenRequest
    from windlass.api.sessions.v1.sessions_pb2_grpc import SessionsAgentServiceStub

    ours, theirs = [await site.replica.register(name) for name in ("west", "north")]
    async with grpc.aio.insecure_channel(site.replica.address) as channel:
        stub = SessionsAgentServiceStub(channel)
        mine = (("authorization", f"Bearer {ours.credential}"),)
        listening = stub.Listen(ListenRequest(session_id="s1"), metadata=mine)
        assert await listening.read() == Dial()
        connecting = asyncio.create_task(site.replica.connect(ours.cluster_id))
        dial = await listening.read()
        assert isinstance(dial, Dial)
        stolen = stub.Attach(metadata=(("authorization", f"Bearer {theirs.credential}"),))
        await stolen.write(Chunk(connection_id=dial.connection_id))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stolen.read()
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND
        # It is still there for whom it was meant.
        call = stub.Attach(metadata=mine)
        await call.write(Chunk(connection_id=dial.connection_id))
        stream = await connecting
        await call.write(Chunk(data=b"hello"))
        assert await stream.read() == b"hello"
        stream.abort()
