"""Calls that share a gRPC call; two ends of one in memory stand for gRPC's."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import grpc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.waiting import PATIENCE, settled, until

from windlass.api.sessions.v1.sessions_pb2 import Chunk, Frame, Frames
from windlass.core.errors import AppError, NotFound, Unavailable
from windlass.tunnel import multiplexer
from windlass.tunnel.byte_stream import ByteStream, over_call
from windlass.tunnel.multiplexed_call import PIECE_BYTES, WINDOW_BYTES, MultiplexedCall
from windlass.tunnel.multiplexer import Multiplexer


class End:
    """One end of a gRPC call of frames, with a window of one message."""

    def __init__(self) -> None:
        self.coming: asyncio.Queue[Any] = asyncio.Queue(1)
        self.other: End
        self.messages: list[Frames] = []

    async def read(self) -> Any:
        return await self.coming.get()

    async def write(self, message: bytes) -> None:
        self.messages.append(Frames.FromString(message))
        await self.other.coming.put(message)


@dataclass
class Line:
    """A client and a server, which hands each call over as it comes."""

    near: End
    far: End
    client: Multiplexer
    server: Multiplexer
    running: list[asyncio.Task[None]]
    accepted: asyncio.Queue[MultiplexedCall] = field(default_factory=asyncio.Queue)
    done: asyncio.Event = field(default_factory=asyncio.Event)

    async def call(self) -> tuple[MultiplexedCall, MultiplexedCall]:
        """Both ends of a new call."""
        one = self.client.open(Chunk(connection_id="c"))
        other = await self.accepted.get()
        assert await other.read() == Chunk(connection_id="c")
        return one, other

    async def streams(self) -> tuple[ByteStream, ByteStream]:
        """The same as streams."""
        one, other = await self.call()
        return over_call(one), ByteStream(other)


@contextlib.asynccontextmanager
async def connected() -> AsyncIterator[Line]:
    near, far = End(), End()
    near.other, far.other = far, near

    async def handle(call: MultiplexedCall) -> None:
        made.accepted.put_nowait(call)
        await made.done.wait()

    client, server = Multiplexer(near, paces=True), Multiplexer(far, handle)
    running = [asyncio.create_task(end.run()) for end in (client, server)]
    made = Line(near, far, client, server, running)
    try:
        async with asyncio.timeout(PATIENCE):
            yield made
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


@pytest.fixture
async def line() -> AsyncIterator[Line]:
    async with connected() as made:
        yield made


async def everything(stream: ByteStream) -> bytes:
    data = b""
    while more := await stream.read():
        data += more
    return data


async def fill(call: MultiplexedCall) -> None:
    while True:
        await call.write(b"x" * 1000)


PIECES = st.lists(
    st.binary(min_size=1, max_size=9)
    | st.sampled_from([PIECE_BYTES, PIECE_BYTES + 1, WINDOW_BYTES, 2 * WINDOW_BYTES]).map(bytes),
    max_size=5,
)


@settings(max_examples=20, deadline=None)
@given(st.lists(PIECES, min_size=1, max_size=4))
def test_each_call_reads_what_was_written_to_it(calls: list[list[bytes]]) -> None:
    async def one(line: Line, number: int, pieces: list[bytes]) -> None:
        near, far = await line.streams()

        async def write() -> None:
            for piece in pieces:
                await near.write(bytes([number]) + piece)
            await near.close_write()

        _, data = await asyncio.gather(write(), everything(far))
        assert data == b"".join(bytes([number]) + piece for piece in pieces)
        await far.close_write()
        assert await near.read() == b""

    async def run() -> None:
        async with connected() as line:
            await asyncio.gather(*(one(line, *each) for each in enumerate(calls)))
            line.done.set()
            await until(lambda: line.client.load == line.server.load == 0)

    asyncio.run(run())


async def test_an_empty_piece_is_an_end(line: Line) -> None:
    """As an empty chunk is in a gRPC call of its own."""
    near, far = await line.streams()
    await near.write(b"")
    assert await far.read() == b""
    assert await far.read() == b""


async def test_what_calls_write_together_is_one_message(line: Line) -> None:
    calls = [await line.call() for _ in range(50)]
    before = len(line.near.messages)
    await asyncio.gather(*(near.write(b"x") for near, _ in calls))
    for _, far in calls:
        assert await far.read() == b"x"
    assert len(line.near.messages) == before + 1


async def test_those_who_write_often_are_paced(line: Line) -> None:
    pairs = [await line.call() for _ in range(2)]
    began, before = asyncio.get_running_loop().time(), len(line.near.messages)

    async def talk(near: MultiplexedCall, far: MultiplexedCall) -> None:
        for _ in range(200):
            await near.write(b"x")
            assert await far.read() == b"x"

    await asyncio.gather(*(talk(*pair) for pair in pairs))
    spent = asyncio.get_running_loop().time() - began
    sent = len(line.near.messages) - before
    assert sent <= spent / multiplexer.PACE_SECONDS + multiplexer.BURST + 1


async def test_who_writes_alone_waits_for_nobody(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(multiplexer, "PACE_SECONDS", 0.2)
    near, far = await line.call()
    began = asyncio.get_running_loop().time()
    for _ in range(2 * multiplexer.BURST):
        await near.write(b"x")
        assert await far.read() == b"x"
    assert asyncio.get_running_loop().time() - began < 10 * multiplexer.PACE_SECONDS


async def test_a_reader_that_stalls_stops_its_writer_and_nobody_else(line: Line) -> None:
    stalled, unread = await line.call()
    filling = asyncio.create_task(fill(stalled))
    await settled(lambda: stalled._room, 0.05)
    assert not filling.done()
    assert WINDOW_BYTES - 2000 < unread._held <= WINDOW_BYTES
    near, far = await line.call()
    for _ in range(5):
        await near.write(b"still here")
        assert await far.read() == b"still here"
    # Once it reads again, so does its writer write.
    for _ in range(1000):
        assert await unread.read() == b"x" * 1000
    filling.cancel()
    await asyncio.gather(filling, return_exceptions=True)


async def test_large_writes_leave_room_between_them(line: Line) -> None:
    (bulk, bulk_far), (near, far) = await line.call(), await line.call()
    writing = asyncio.create_task(bulk.write(bytes(2 * WINDOW_BYTES)))
    await asyncio.sleep(0)
    before = len(line.near.messages)
    await near.write(b"small")
    assert await far.read() == b"small"
    ahead = line.near.messages[before:]
    assert sum(len(frame.data) for message in ahead for frame in message.frames) < WINDOW_BYTES
    size = 0
    while size < 2 * WINDOW_BYTES:
        size += len(await bulk_far.read())
    await writing


async def test_who_leaves_ends_the_call_for_its_server(line: Line) -> None:
    near, far = await line.streams()
    reading = asyncio.create_task(far.read())
    near.abort()
    with pytest.raises(Unavailable):
        await reading
    await until(lambda: line.server.load == line.client.load == 0)
    assert not line.running[0].done()


async def test_a_server_that_refuses_says_why(line: Line) -> None:
    near, far = await line.streams()
    reading = asyncio.create_task(near.read())
    task = line.server._handlers[1]
    task.cancel()
    with pytest.raises(Unavailable, match="cancelled") as caught:
        await reading
    assert caught.value.reason == "cluster_unreachable"
    far.abort()


async def test_what_a_server_said_is_read_before_its_end(line: Line) -> None:
    near, far = await line.call()
    for _ in range(3):
        await far.write(b"last words")
    line.done.set()
    await until(lambda: line.client.load == 0)
    assert [await near.read() for _ in range(3)] == [b"last words"] * 3
    assert await near.read() is grpc.aio.EOF
    with pytest.raises(AppError):
        await near.write(b"x")


async def test_a_line_that_ends_ends_every_call(line: Line) -> None:
    streams = [await line.streams() for _ in range(3)]
    reading = [asyncio.create_task(end.read()) for pair in streams for end in pair]
    await asyncio.sleep(0)
    line.client.abort(NotFound("It is gone."))
    line.server.abort()
    found = await asyncio.gather(*reading, return_exceptions=True)
    assert [type(error) for error in found] == [NotFound, Unavailable] * 3
    with pytest.raises(NotFound):
        await line.running[0]


async def test_frames_of_calls_that_are_over_are_ignored(line: Line) -> None:
    near, _ = await line.call()
    near.cancel()
    await until(lambda: line.server.load == 0)
    for late in (
        Frame(stream=1, data=b"x"), Frame(stream=1, taken=5), Frame(stream=1, over="x"),
        Frame(stream=1, chunk=Chunk(connection_id="c")), Frame(stream=9, data=b"x"), Frame(),
    ):  # fmt: skip
        await line.near.write(Frames(frames=[late]).SerializeToString())
    near, far = await line.call()
    await near.write(b"x")
    assert await far.read() == b"x"


async def test_a_server_that_drains_keeps_what_is_open(line: Line) -> None:
    near, far = await line.call()
    line.server.drain()
    await until(lambda: line.client.retired)
    await near.write(b"x")
    assert await far.read() == b"x"
    near.cancel()
    await line.running[0]


async def test_an_idle_line_says_that_it_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multiplexer, "PULSE_SECONDS", 0.01)
    async with connected() as line:
        await until(lambda: len(line.near.messages) > 2 and len(line.far.messages) > 2)


async def test_a_server_that_never_answers_is_told(line: Line) -> None:
    await line.client.opened()
    alone = Multiplexer(End())
    running = asyncio.create_task(alone.run())
    waiting = asyncio.create_task(alone.opened())
    await asyncio.sleep(0)
    alone.abort()
    with pytest.raises(Unavailable):
        await waiting
    await running
