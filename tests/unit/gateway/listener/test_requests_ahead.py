"""Requests that a client sends ahead of its answers, and the room that they take until then."""

import asyncio
from typing import Any

import pytest
import uvicorn
from tests.support.waiting import until
from uvicorn.server import ServerState

from windlass.core.addresses import ClientAddresses
from windlass.core.config import HttpSection
from windlass.gateway.asgi import respond
from windlass.gateway.listener import protocol
from windlass.gateway.listener.bounds import ListenerBounds
from windlass.gateway.listener.connection_limiter import ConnectionLimiter
from windlass.gateway.listener.joined_answer import REST
from windlass.gateway.listener.protocol import BoundedProtocol

SHORTEST = b"GET / HTTP/1.1\r\n\r\n"
POST = b"POST / HTTP/1.1\r\ncontent-length: 3\r\n\r\nabc"
# Of one read, as the loop gives it.
READ_BYTES = 256_000


class Wire(asyncio.Transport):
    """A connection that nothing is behind."""

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()
        self.answers = 0
        self.reads, self.closed = True, False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("192.0.2.1", 1) if name == "peername" else default

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data
        self.answers += bytes(data).count(b"HTTP/1.1 ")

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def get_write_buffer_size(self) -> int:
        return 0


def connected(application: Any) -> tuple[BoundedProtocol, Wire]:
    config = uvicorn.Config(
        application,
        http="httptools",
        ws="none",
        lifespan="off",
        log_config=None,
        proxy_headers=False,
    )
    config.load()
    limiter = ConnectionLimiter(ListenerBounds.of(HttpSection()), ClientAddresses())
    one = BoundedProtocol(limiter, config=config, server_state=ServerState(), app_state={})
    wire = Wire()
    one.connection_made(wire)
    return one, wire


async def until_answered(wire: Wire, number: int) -> None:
    async with asyncio.timeout(30):
        while wire.answers < number:
            await asyncio.sleep(0)


async def test_they_wait_as_they_came() -> None:
    """As requests, those of one read took thirty megabytes, of each connection."""
    turn = asyncio.Semaphore(0)

    async def application(scope: Any, receive: Any, send: Any) -> None:
        await turn.acquire()
        await respond(send, 200, [], b"")

    one, wire = connected(application)
    number = READ_BYTES // len(SHORTEST)
    one.data_received(SHORTEST * number)
    most = protocol.HEAD_PART // len(SHORTEST)
    assert len(one.pipeline) < most
    assert not wire.reads
    for done in range(1, 3 * most):
        turn.release()
        await until_answered(wire, done)
        assert len(one.pipeline) <= most
    # What was on its way when the reading paused comes after it.
    one.data_received(SHORTEST[:5])
    one.data_received(SHORTEST[5:])
    for _ in range(number + 1):
        turn.release()
    await until_answered(wire, number + 1)
    assert wire.answers == number + 1
    assert wire.reads


@pytest.mark.parametrize("part", [1, 7, READ_BYTES])
async def test_each_is_answered_by_its_own_body(part: int) -> None:
    async def echo(scope: Any, receive: Any, send: Any) -> None:
        message = await receive()
        body = message["body"]
        while message["more_body"]:
            message = await receive()
            body += message["body"]
        await respond(send, 200, [], scope["query_string"] + body)

    one, wire = connected(echo)
    numbers = range(1000)
    sent = b"".join(POST.replace(b"/ ", b"/?%d " % number, 1) for number in numbers)
    for at in range(0, len(sent), part):
        while not wire.reads:
            await asyncio.sleep(0)
        one.data_received(sent[at : at + part])
    await until_answered(wire, len(numbers))
    said = [answer.rpartition(b"\r\n")[2] for answer in wire.written.split(b"HTTP/1.1 ")[1:]]
    assert said == [b"%dabc" % number for number in numbers]


async def test_who_was_told_often_to_wait_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of guesses that wait would have kept a connection for hours."""
    monkeypatch.setattr(protocol, "MOST_RESTS", 3)

    async def refuse(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": REST, "seconds": 0.01})
        await respond(send, 429, [], b"")

    one, wire = connected(refuse)
    one.data_received(SHORTEST * 1000)
    await until(lambda: wire.closed)
    assert wire.answers == 4
