"""The gateway's connections to engines, against servers that speak as badly as servers may."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial

import pytest
from structlog.testing import capture_logs
from tests.support.processes.windlass import free_port
from tests.support.waiting import PATIENCE, settled, until

from windlass.gateway.errors import HttpError
from windlass.gateway.inference.engines import (
    Asker,
    EngineBroken,
    EngineConnection,
    EngineConnectionPool,
    EnginePlace,
    Engines,
    NoAnswer,
    Sent,
    Tenant,
    ejection,
    failed,
)
from windlass.gateway.inference.engines import connection as connections
from windlass.gateway.inference.engines.aborting import abort
from windlass.gateway.inference.routes import EngineEndpoint

PATH = "/v1/chat/completions"
ASKED = Sent(PATH, b"{}", "req_1")
WHOLE = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"
Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def engine(
    *answers: Answer, port: int = 0
) -> AsyncIterator[tuple[EngineConnectionPool, list[bytes]]]:
    """An engine whose n-th connection is served by the n-th answer, the last one for all others."""
    heads: list[bytes] = []
    left = list(answers)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answer = left.pop(0) if len(left) > 1 else left[0]
        heads.append(b"")
        while line := await reader.readline():
            heads[-1] += line
            if line == b"\r\n":
                await reader.readexactly(2)
                await answer(reader, writer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", port)
    async with server:
        port = server.sockets[0].getsockname()[1]
        pool = EngineConnectionPool(f"http://127.0.0.1:{port}")
        try:
            yield pool, heads
        finally:
            pool.close()


def says(*parts: bytes, close: bool = False) -> Answer:
    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for part in parts:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(0)
        if close:
            writer.close()

    return answer


async def ask(pool: EngineConnectionPool) -> EngineConnection:
    return await pool.send(PATH, b"{}", "req_1")


def take(engines: Engines, endpoints: list[EngineEndpoint]) -> EnginePlace:
    place = engines.place(endpoints, Asker("mv", Tenant("org", "proj")))
    assert place is not None
    return place


async def test_exchanges_share_a_connection_that_is_whole() -> None:
    async with engine(says(WHOLE)) as (pool, heads):
        for _ in range(3):
            answer = await ask(pool)
            assert (answer.status, answer.content_type) == (200, "application/json")
            assert await answer.read() == b"{}"
            pool.done(answer)
        assert len(heads) == 1
        assert heads[0].count(b"POST /v1/chat/completions HTTP/1.1\r\n") == 3
        assert b"x-request-id: req_1\r\n" in heads[0]


async def test_an_answer_that_came_whole_and_unread_is_told_to_nobody_else() -> None:
    async with engine(says(WHOLE)) as (pool, heads):
        first = await pool.send(PATH, b"{}", "req-1")
        await until(lambda: first.whole)
        pool.done(first)
        second = await pool.send(PATH, b"{}", "req-2")
        assert await second.read() == b"{}"
        pool.done(second)
        assert len(heads) == 2, "each has a connection of its own"


async def test_an_answer_that_was_not_read_to_its_end_ends_its_connection() -> None:
    slow = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\none\r\n"
    async with engine(says(slow), says(WHOLE)) as (pool, heads):
        answer = await ask(pool)
        assert await answer.readany() == b"one"
        pool.done(answer)
        assert await (await ask(pool)).read() == b"{}"
        assert len(heads) == 2


async def test_an_answer_to_an_abort_is_not_read_without_an_end() -> None:
    # More than sockets hold.
    most = 32 * 2**20
    took: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def endless(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        sent = 0
        with suppress(ConnectionError):
            while sent < most:
                writer.write(b"x" * 2**16)
                await writer.drain()
                sent += 2**16
        took.set_result(sent)

    async with engine(endless) as (pool, _):
        asking = asyncio.create_task(abort(pool, PATH, "req_1"))
        assert await took < most
        asking.cancel()
        await asyncio.wait({asking})


@pytest.mark.parametrize("cut", [1, 3, 7, 40])
async def test_an_answer_may_be_cut_anywhere(cut: int) -> None:
    text = b"HTTP/1.1 100 Continue\r\n\r\n" + WHOLE
    parts = [text[at : at + cut] for at in range(0, len(text), cut)]
    async with engine(says(*parts)) as (pool, _):
        answer = await ask(pool)
        assert (answer.status, await answer.read()) == (200, b"{}")


async def test_a_body_without_a_length_ends_with_its_connection() -> None:
    text = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: 1\n\n"
    async with engine(says(text, b"data: 2\n\n", close=True)) as (pool, _):
        answer = await ask(pool)
        assert await answer.read() == b"data: 1\n\ndata: 2\n\n"
        pool.done(answer)
        assert not answer.reusable


async def test_a_body_that_ends_too_early_is_an_error_after_what_came() -> None:
    text = b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf"
    async with engine(says(text, close=True)) as (pool, _):
        answer = await ask(pool)
        assert await answer.readany() == b"half"
        with pytest.raises(EngineBroken):
            await answer.readany()
        pool.done(answer)


@pytest.mark.parametrize("text", [b"SSH-2.0-OpenSSH_9\r\n", b"HTTP/1.1 200 OK\r\nbad\0: x\r\n\r\n"])
async def test_what_is_no_http_is_an_error(text: bytes) -> None:
    async with engine(says(text)) as (pool, _):
        with pytest.raises(EngineBroken, match="not HTTP"):
            await ask(pool)


async def test_a_connection_that_was_closed_while_it_rested_is_not_used() -> None:
    async with engine(says(WHOLE, close=True), says(WHOLE)) as (pool, heads):
        answer = await ask(pool)
        await answer.read()
        pool.done(answer)
        await until(lambda: not answer.reusable)
        assert await (await ask(pool)).read() == b"{}"
        assert len(heads) == 2


async def test_an_engine_is_held_up_while_nobody_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    size, sent = 64 * 2**20, 0

    async def flood(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % size)
        while sent < size:
            writer.write(bytes(2**20))
            await writer.drain()
            sent += 2**20

    async with engine(flood) as (pool, _):
        answer = await ask(pool)
        assert await settled(lambda: sent) < size / 2
        assert len(await answer.read()) == size
        pool.done(answer)


async def test_silence_ends_an_exchange(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "SILENCE_SECONDS", 1.0)
    async with engine(says(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n")) as (pool, _):
        answer = await ask(pool)
        with pytest.raises(EngineBroken, match="did not respond in time"):
            await answer.readany()
        pool.done(answer)


async def test_a_cancelled_request_ends_its_connection() -> None:
    closed = asyncio.Event()

    async def never(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read()
        closed.set()

    async with engine(never) as (pool, heads):
        asking = asyncio.create_task(ask(pool))
        await until(lambda: heads and heads[0].endswith(b"\r\n\r\n"))
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await asyncio.wait_for(closed.wait(), PATIENCE)


async def test_an_engine_with_too_much_to_do_leaves_requests_to_others() -> None:
    busy = says(b"HTTP/1.1 503 Busy\r\ncontent-length: 2\r\n\r\n{}")
    async with (
        engine(busy) as (full, _),
        engine(busy) as (other, _),
        engine(says(WHOLE)) as (free, _),
    ):
        engines = Engines()
        addresses = [pool._address.geturl() for pool in (full, other, free)]
        endpoints = [EngineEndpoint(one, one, frozenset()) for one in addresses]
        for _ in range(10):
            place = take(engines, endpoints)
            answer = await engines.open(place, endpoints, ASKED)
            assert (answer.status, await answer.read()) == (200, b"{}")
            engines.done(place, answer)
        # Where nobody has room, the client hears what the engine says.
        place = take(engines, endpoints[:2])
        answer = await engines.open(place, endpoints[:2], ASKED)
        assert (answer.status, await answer.read()) == (503, b"{}")
        engines.done(place, answer)
        assert not any(engines._pool(one).active for one in addresses)
        await engines.close()


async def test_a_request_that_engines_have_left_is_at_none() -> None:
    has: list[int] = []
    sent = ASKED._replace(asked=partial(has.append, 1), refused=has.clear)
    unloaded = says(b"HTTP/1.1 404 Unloaded\r\ncontent-length: 2\r\n\r\n{}")
    async with engine(unloaded) as (one, heads), engine(unloaded) as (other, _):
        engines = Engines()
        addresses = [pool._address.geturl() for pool in (one, other)]
        endpoints = [EngineEndpoint(address, address, frozenset()) for address in addresses]
        place = take(engines, endpoints)
        with pytest.raises(NoAnswer):
            await engines.open(place, endpoints, sent)
        assert (len(heads), has) == (1, [])
        engines.done(place)
        await engines.close()


async def test_an_engine_that_is_gone_is_tried_once_and_comes_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ejection, "FIRST_SECONDS", 0.02)
    port = free_port()
    async with engine(says(WHOLE)) as (free, _):
        engines = Engines()
        addresses = [f"http://127.0.0.1:{port}", free._address.geturl()]
        endpoints = [EngineEndpoint(one, one, frozenset()) for one in addresses]

        async def answered_by() -> str:
            place = take(engines, endpoints)
            answer = await engines.open(place, endpoints, ASKED)
            assert await answer.read() == b"{}"
            engines.done(place, answer)
            return place.pool.address

        with capture_logs() as logs:
            for _ in range(20):
                assert await answered_by() == addresses[1]
        assert [log["event"] for log in logs].count("engine_unreachable") == 1
        probing = asyncio.create_task(engines.probe())
        # The other one is busier from now on.
        busy = take(engines, endpoints[1:])
        async with engine(says(WHOLE), port=port):
            await until(answered_by, holds=lambda address: address == addresses[0])
        engines.done(busy)
        probing.cancel()
        await engines.close()


async def test_a_request_that_ends_its_engine_ends_one_more_at_most() -> None:
    async with engine(says(close=True)) as (a, one), engine(says(close=True)) as (b, two):
        engines = Engines()
        endpoints = [EngineEndpoint("e", pool.address, frozenset()) for pool in (a, b)]
        for again, sent in ((True, 2), (False, 1)):
            before = len(one) + len(two)
            place = take(engines, endpoints)
            with pytest.raises(HttpError, match="broke off") as caught:
                await engines.open(place, endpoints, ASKED, again=again)
            engines.done(place)
            assert (caught.value.status, caught.value.code) == (502, "engine_failed")
            assert len(one) + len(two) == before + sent
        await engines.close()


async def test_a_request_whose_connection_closes_goes_to_another_engine_or_comes_again() -> None:
    async def gone(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(WHOLE)
        assert await reader.readuntil(b"\r\n\r\n")
        writer.close()

    async with engine(gone, says(WHOLE)) as (pool, heads), engine(says(WHOLE)) as (other, _):
        engines = Engines()
        one, two = (EngineEndpoint("e", each.address, frozenset()) for each in (pool, other))

        async def answer(*endpoints: EngineEndpoint) -> str:
            place = take(engines, [one])
            connection = await engines.open(place, endpoints, ASKED)
            assert await connection.read() == b"{}"
            engines.done(place, connection)
            return place.pool.address

        assert await answer(one) == one.address
        place = take(engines, [one])
        with pytest.raises(NoAnswer) as caught:
            await engines.open(place, [one], ASKED)
        engines.done(place)
        assert caught.value.broke_off
        # On a new connection, which is the second.
        assert await answer(one) == one.address
        assert len(heads) == 2
        engines._pool(one.address).close()
        await engines.close()
    async with engine(gone) as (pool, _), engine(says(WHOLE)) as (other, _):
        engines = Engines()
        one, two = (EngineEndpoint("e", each.address, frozenset()) for each in (pool, other))
        assert await answer(one) == one.address
        assert await answer(one, two) == two.address
        await engines.close()


async def test_a_copy_that_may_have_ended_its_engine_is_sent_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engines, ended = Engines(hedge_seconds=0.01), asyncio.Event()
    endpoints = [EngineEndpoint("e", f"http://127.0.0.1:{one}", frozenset()) for one in (1, 2)]

    async def opening(*_: object, again: bool = True) -> EngineConnection:
        if again:
            await ended.wait()
            raise NoAnswer
        ended.set()
        raise failed(EngineBroken("it closed"))

    monkeypatch.setattr(engines, "_open", opening)
    place = take(engines, endpoints)
    with pytest.raises(NoAnswer) as caught:
        await engines.open(place, endpoints, ASKED)
    assert caught.value.broke_off
    engines.done(place)
    assert not any(engines._pool(one.address).active for one in endpoints)
    await engines.close()


async def test_a_request_that_an_engine_does_not_answer_is_sent_to_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "SILENCE_SECONDS", 1.0)
    async with engine(says()) as (a, one), engine(says()) as (b, two):
        engines = Engines()
        endpoints = [EngineEndpoint("e", pool.address, frozenset()) for pool in (a, b)]
        place = take(engines, endpoints)
        with pytest.raises(HttpError, match="did not go on") as caught:
            await engines.open(place, endpoints, ASKED)
        engines.done(place)
        assert (caught.value.status, len(one) + len(two)) == (502, 1)
        await engines.close()


async def test_nobody_listening_is_an_error_in_openai_shape() -> None:
    engines = Engines()
    gone = EngineEndpoint("e", "http://127.0.0.1:1", frozenset())
    absent = EngineEndpoint("e", "unix:///nowhere/engine.sock", frozenset())
    for endpoints in ([gone], [absent], [gone, absent]):
        with pytest.raises(HttpError) as caught:
            await engines.open(take(engines, endpoints), endpoints, ASKED)
        assert (caught.value.status, caught.value.code) == (503, "model_not_ready")
    await engines.close()
