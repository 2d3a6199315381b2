"""The gateway's listener against clients without a key: heads, bodies, answers, connections.

The application behind it is a few lines, so that what is seen is the listener's own.
"""

import asyncio
import contextlib
import ssl
import time
from collections.abc import AsyncIterator
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvloop
from tests.support.clients.raw_http import raw
from tests.support.environments.certificates import self_signed
from tests.support.waiting import PATIENCE, soon, until

from windlass.core.config import HttpSection
from windlass.gateway.asgi import respond
from windlass.gateway.listener import HttpServer, connection_limiter, protocol

GET = b"GET /small HTTP/1.1\r\nhost: x\r\n\r\n"
WHOLE = 2**24
SHORT = {"head_seconds": 1.0, "body_seconds": 1.0, "write_seconds": 1.0}


@pytest.fixture(scope="module")
def event_loop_policy() -> asyncio.AbstractEventLoopPolicy:
    """The loop that `windlass serve` has."""
    policy: asyncio.AbstractEventLoopPolicy = uvloop.EventLoopPolicy()
    return policy


async def application(scope: Any, receive: Any, send: Any) -> None:
    """/small answers at once; /large sends without end; /body reads all that comes first.

    /whole is large as well, and sent at once.
    """
    sizes = {"/large": 2**16}
    if scope["path"] == "/body":
        while (message := await receive())["type"] == "http.request" and message["more_body"]:
            pass
        if message["type"] == "http.disconnect":
            return
    if scope["path"] == "/whole":
        await respond(send, 200, [], b"x" * WHOLE)
        return
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for _ in range(10_000 if scope["path"] in sizes else 0):
        await send({"type": "http.response.body", "body": b"x" * 2**16, "more_body": True})
    await send({"type": "http.response.body", "body": b"done"})


@contextlib.asynccontextmanager
async def listening(app: Any = application, **settings: Any) -> AsyncIterator[HttpServer]:
    server = HttpServer(app, HttpSection(port=0, **settings))
    task = asyncio.create_task(server.run())
    await server.started.wait()
    try:
        yield server
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def until_closed(server: HttpServer) -> None:
    await until(lambda: not server.connections)


async def test_what_is_asked_ahead_is_not_read_without_end() -> None:
    """Each answer had the next thousands of requests read, until memory ran out."""
    turn = asyncio.Semaphore(0)

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        await turn.acquire()
        await respond(send, 200, [], b"")

    async with listening(slow) as server, raw(server.port) as client:
        client.writer.write(GET * 1_000_000)
        for number in range(101):
            turn.release()
            assert await client.status() == 200
            while await client.reader.readline() != b"\r\n":
                pass
            if not number:
                unsent = client.writer.transport.get_write_buffer_size()
        assert unsent - client.writer.transport.get_write_buffer_size() < 2**21
        client.writer.transport.abort()


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\n\r\n", 414),
        (b"GET /" + b"a" * 2**20, 414),
        (b"GET / HTTP/1.1\r\nx: " + b"a" * 40_000 + b"\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\nx: " + b"a" * 200_000, 431),
        (b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 101 + b"\r\n", 431),
        (b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 30_000, 431),
        (b"\x16\x03\x01 nonsense\r\n\r\n", 400),
    ],
    ids=["target", "endless target", "header", "endless header", "headers", "endless", "nonsense"],
)
async def test_a_head_beyond_its_bounds(head: bytes, status: int) -> None:
    async with listening() as server, raw(server.port) as client:
        with contextlib.suppress(ConnectionError):
            await client.send(head)
        answer = await client.all()
        assert answer.startswith(b"HTTP/1.1 %d " % status)
        assert b"connection: close" in answer
        assert b'"error"' in answer


async def test_a_long_header_costs_no_more_than_its_bound() -> None:
    """64 MiB of one header stood still for eight seconds, and everybody with it."""
    async with listening() as server, raw(server.port) as client:
        await client.send(b"GET / HTTP/1.1\r\nx: ")

        async def flood() -> None:
            with contextlib.suppress(ConnectionError):
                for _ in range(64):
                    await client.send(b"a" * 2**20)

        flooding = asyncio.create_task(flood())
        async with httpx.AsyncClient(timeout=PATIENCE) as other, soon(4):
            answer = await other.get(f"http://127.0.0.1:{server.port}/small")
        assert answer.text == "done"
        await flooding


async def test_a_head_that_does_not_come() -> None:
    async with (
        listening(**SHORT) as server,
        raw(server.port) as silent,
        raw(server.port) as half,
        raw(server.port) as second,
    ):
        await half.send(b"GET / HTTP/1.1\r\nhost: x")
        await second.send(GET)
        assert await second.status() == 200
        # The next one's head is no better.
        await second.send(b"GET /")
        assert await silent.all() == b""
        assert (await half.all()).startswith(b"HTTP/1.1 408 ")
        assert b"HTTP/1.1 408 " in await second.all()


async def test_a_body_that_comes_too_slowly() -> None:
    async with listening(**SHORT) as server, raw(server.port) as client:
        await client.send(b"POST /body HTTP/1.1\r\nhost: x\r\ncontent-length: 100000\r\n\r\n")
        sending = asyncio.create_task(trickle(client))
        assert (await client.all()).startswith(b"HTTP/1.1 408 ")
        sending.cancel()


async def trickle(client: Any) -> None:
    with contextlib.suppress(ConnectionError):
        while True:
            await client.send(b"x")
            await asyncio.sleep(0.1)


async def test_a_body_that_comes_fast_enough_is_read_to_its_end() -> None:
    options = {**SHORT, "body_seconds": 2.0, "body_bytes_per_second": 100}
    async with listening(**options) as server, raw(server.port) as client:
        await client.send(b"POST /body HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\n")
        for _ in range(10):
            await client.send(b"x" * 100)
            await asyncio.sleep(0.3)
        assert await client.status() == 200


async def test_an_answer_that_nobody_reads() -> None:
    async with listening(**SHORT) as server, raw(server.port, receive_buffer=4096) as client:
        await client.send(b"GET /large HTTP/1.1\r\nhost: x\r\n\r\n")
        transport: Any = client.writer.transport
        transport.pause_reading()
        await until_closed(server)


@pytest.mark.parametrize(("rate", "ends"), [(2**30, True), (1, False)])
async def test_an_answer_that_is_read_slowly(rate: int, ends: bool) -> None:
    options = {**SHORT, "answer_bytes_per_second": rate}
    async with listening(**options) as server, raw(server.port, receive_buffer=4096) as client:
        await client.send(b"GET /large HTTP/1.1\r\nhost: x\r\n\r\n")
        try:
            for _ in range(25):
                assert await client.reader.read(2**20)
                await asyncio.sleep(0.1)
        except ConnectionError:
            assert ends
        assert bool(server.connections) is not ends


async def test_an_answer_that_is_read_slowly_comes_to_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever would end the connection after it: a request, its rest, or others that come."""
    monkeypatch.setattr(protocol, "LINGER_SECONDS", 0.1)
    monkeypatch.setattr(connection_limiter, "SWEEP_SECONDS", 0.1)

    async def size(connection: bytes) -> int:
        async with raw(server.port) as client:
            head = b"GET /whole HTTP/1.1\r\nhost: x\r\nconnection: %b\r\n\r\n"
            await client.send(head % connection)
            first = b""
            for _ in range(16):
                first += await client.reader.read(2**10)
                await asyncio.sleep(0.1)
            return len((first + await client.all()).partition(b"\r\n\r\n")[2])

    async with listening(keep_alive_seconds=1, max_connections=64) as server:
        sizes = asyncio.gather(size(b"close"), size(b"keep-alive"))
        async with contextlib.AsyncExitStack() as stack:
            for _ in range(64):
                other = await stack.enter_async_context(raw(server.port))
                await other.send(GET)
                assert await other.status() == 200
            assert [*await sizes] == [WHOLE, WHOLE]
        await until_closed(server)


async def test_a_body_that_nobody_reads() -> None:
    async with listening() as server, raw(server.port) as client:
        await client.send(b"POST /small HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000000\r\n\r\n")
        assert await client.status() == 200

        async def flood() -> None:
            for _ in range(1000):
                await client.send(b"x" * 2**16)

        with pytest.raises(ConnectionError):
            await flood()


async def test_a_small_body_that_nobody_reads_costs_no_connection() -> None:
    async with listening() as server, raw(server.port) as client:
        for _ in range(3):
            await client.send(b"POST /small HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\nab")
            assert await client.status() == 200
            while not (await client.reader.readline()).startswith(b"0"):
                pass
            await client.reader.readline()


async def test_half_open_connections_make_room_for_whoever_asks() -> None:
    async with listening(max_connections=64) as server, contextlib.AsyncExitStack() as stack:
        busy = await stack.enter_async_context(raw(server.port))
        await busy.send(b"POST /body HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\na")
        idle = await stack.enter_async_context(raw(server.port))
        await idle.send(GET)
        assert await idle.status() == 200
        half = [await stack.enter_async_context(raw(server.port)) for _ in range(200)]
        async with httpx.AsyncClient() as other:
            answer = await other.get(f"http://127.0.0.1:{server.port}/small")
        assert answer.text == "done"
        assert await half[0].all() == b""
        # Whoever has asked something stays.
        await busy.send(b"b")
        assert await busy.status() == 200


async def test_an_address_has_its_share_and_a_trusted_proxy_has_all() -> None:
    body = b"POST /body HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\nexpect: 100-continue\r\n\r\n"
    for trusted, status in (([], 503), (["127.0.0.0/8"], 200)):
        async with (
            listening(max_connections_per_address=8, trusted_proxies=trusted) as server,
            contextlib.AsyncExitStack() as stack,
        ):
            for _ in range(8):
                client = await stack.enter_async_context(raw(server.port))
                await client.send(body)
                assert await client.status() == 100
            more = await stack.enter_async_context(raw(server.port))
            with contextlib.suppress(ConnectionError):
                await more.send(GET)
            assert await more.status() == status


async def test_a_handshake_that_does_not_come(tmp_path: Path) -> None:
    certificate, key = self_signed(tmp_path)
    tls = {"certificate": certificate, "key": key}
    async with listening(**SHORT, tls=tls, max_connections=64) as server:
        context = ssl.create_default_context(cafile=str(certificate))
        async with contextlib.AsyncExitStack() as stack:
            half = [await stack.enter_async_context(raw(server.port)) for _ in range(100)]
            async with httpx.AsyncClient(verify=context) as other:
                for _ in range(2):
                    answer = await other.get(f"https://127.0.0.1:{server.port}/small")
                    assert answer.text == "done"
            assert await half[0].all() == b""
            assert await half[-1].all() == b""
        await until_closed(server)


async def test_a_connection_that_rests_is_closed_and_one_that_asks_is_not() -> None:
    async with listening(keep_alive_seconds=2) as server, raw(server.port) as asking:
        async with raw(server.port) as resting:
            await resting.send(GET)
            assert await resting.status() == 200
            ended = asyncio.create_task(resting.all())
            while not ended.done():
                await asking.send(GET)
                assert await asking.status() == 200
                await asking.reader.readuntil(b"done\r\n0\r\n\r\n")
                await asyncio.wait([ended], timeout=0.5)
            assert ended.result().endswith(b"done\r\n0\r\n\r\n")
        assert server.connections == 1


async def test_requests_that_come_at_once_are_answered_in_their_order() -> None:
    async with listening() as server, raw(server.port) as client:
        await client.send(GET * 3 + b"GET /%73mall?a=b HTTP/1.0\r\n\r\n")
        answers = await client.all()
    assert answers.count(b"HTTP/1.1 200 ") == 4
    assert answers.count(b"done") == 4


async def test_who_leaves_with_a_request_in_line_has_left_the_one_before_it() -> None:
    begun, left = asyncio.Event(), asyncio.Event()

    async def waits(_: Any, receive: Any, __: Any) -> None:
        begun.set()
        while (await receive())["type"] != "http.disconnect":
            pass
        left.set()

    async with listening(waits) as server:
        async with raw(server.port) as client:
            await client.send(GET * 2)
            await begun.wait()
        async with asyncio.timeout(PATIENCE):
            await left.wait()


async def test_no_refusal_comes_amid_an_answer() -> None:
    begun = asyncio.Event()

    async def slow(_: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        begun.set()
        await receive()
        while (await receive())["type"] != "http.disconnect":
            pass

    async with listening(slow) as server, raw(server.port) as client:
        await client.send(GET)
        await begun.wait()
        await client.send(GET + b"nonsense\r\n\r\n")
        assert (await client.all()).count(b"HTTP/1.1") == 1


async def test_an_answer_has_the_date_of_its_request() -> None:
    async with listening() as server, httpx.AsyncClient() as client:
        dates = set[float]()
        while len(dates) < 3:
            before = int(time.time())
            answer = await client.get(f"http://127.0.0.1:{server.port}/small")
            (date,) = answer.headers.get_list("date")
            dates.add(parsedate_to_datetime(date).timestamp())
            assert before <= max(dates) <= time.time()
            await asyncio.sleep(0.1)
