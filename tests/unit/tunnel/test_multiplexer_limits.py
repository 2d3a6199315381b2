"""A peer that does not keep to the limits of a line loses it."""

from collections.abc import AsyncIterator

import pytest
from tests.unit.tunnel.test_multiplexer import Line, connected

from windlass.api.sessions.v1.sessions_pb2 import Chunk, Frame, Frames
from windlass.core.errors import InvalidArgument
from windlass.tunnel import multiplexer
from windlass.tunnel.multiplexed_call import FRAME_COST, WINDOW_BYTES


@pytest.fixture
async def line() -> AsyncIterator[Line]:
    async with connected() as made:
        yield made


@pytest.mark.parametrize(
    "frame",
    [
        Frame(stream=1, data=bytes(WINDOW_BYTES)),
        Frame(stream=1, chunk=Chunk(error="x" * WINDOW_BYTES)),
    ],
    ids=["data", "chunk"],
)
async def test_more_than_the_window_ends_the_line(line: Line, frame: Frame) -> None:
    await line.call()
    await line.near.write(Frames(frames=[frame]).SerializeToString())
    with pytest.raises(InvalidArgument):
        await line.running[1]


async def test_a_window_of_empty_frames_is_a_window(line: Line) -> None:
    await line.call()
    frames = [Frame(stream=1, data=b"")] * (WINDOW_BYTES // FRAME_COST + 1)
    await line.near.write(Frames(frames=frames).SerializeToString())
    with pytest.raises(InvalidArgument):
        await line.running[1]


@pytest.mark.parametrize(
    "message",
    [
        b"\xff",
        Frames(frames=[Frame(stream=9, data=bytes(2**20))]).SerializeToString(),
        Frames(frames=[Frame()] * 10_001).SerializeToString(),
    ],
    ids=["no message", "too long", "too many frames"],
)
async def test_a_message_that_is_none_of_ours_ends_the_line(line: Line, message: bytes) -> None:
    await line.far.coming.put(message)
    with pytest.raises(InvalidArgument):
        await line.running[1]


async def test_a_message_of_tiny_frames_is_none_too_many(line: Line) -> None:
    pairs = [await line.call() for _ in range(10)]
    for _ in range(1000):
        for near, _ in pairs:
            await near.write(b"x")
    for _, far in pairs:
        for _ in range(1000):
            assert await far.read() == b"x"
    sizes = [len(message.frames) for message in line.near.messages]
    assert max(sizes) < multiplexer.MAX_FRAMES / 2


async def test_more_calls_than_allowed_end_the_line(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(multiplexer, "MAX_CALLS", 3)
    chunk = Chunk(connection_id="c")
    frames = [Frame(stream=number, chunk=chunk) for number in range(1, 5)]
    await line.near.write(Frames(frames=frames).SerializeToString())
    with pytest.raises(InvalidArgument):
        await line.running[1]
