"""Streams of bytes over a call; two ends of one in memory stand for gRPC's."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.waiting import PATIENCE, settled

from windlass.api.sessions.v1.sessions_pb2 import Chunk
from windlass.core.errors import AppError, NotFound, Unavailable
from windlass.tunnel import byte_stream
from windlass.tunnel.byte_stream import FRAME_BYTES, ByteStream, at_once, refused
from windlass.tunnel.splicing import splice


class End:
    """One end of a call, with a window of one message."""

    def __init__(self) -> None:
        self.coming: asyncio.Queue[Any] = asyncio.Queue(1)
        self.other: End

    async def read(self) -> Any:
        return await self.coming.get()

    async def write(self, message: Chunk) -> None:
        await self.other.coming.put(message)

    def has_room(self, size: int) -> bool:
        return not self.other.coming.full()

    def write_now(self, data: bytes) -> None:
        self.other.coming.put_nowait(data)


def pair() -> tuple[End, End]:
    one, other = End(), End()
    one.other, other.other = other, one
    return one, other


def streams() -> tuple[ByteStream, ByteStream]:
    one, other = pair()
    return ByteStream(one), ByteStream(other)


async def everything(stream: ByteStream) -> bytes:
    data = b""
    while more := await stream.read():
        data += more
    return data


async def both(*work: Awaitable[Any]) -> list[Any]:
    async with asyncio.timeout(PATIENCE):
        return list(await asyncio.gather(*work))


@settings(max_examples=30)
@given(st.lists(st.binary(min_size=1, max_size=3 * FRAME_BYTES), max_size=6))
def test_what_is_written_is_read(pieces: list[bytes]) -> None:
    async def run() -> None:
        one, other = streams()

        async def write() -> None:
            for piece in pieces:
                await one.write(piece)
            await one.close_write()

        _, data = await both(write(), everything(other))
        assert data == b"".join(pieces)
        await both(other.close_write(), everything(one))
        await both(one.finished(), other.finished())

    asyncio.run(run())


async def test_what_needs_no_wait_is_written_without_one() -> None:
    one, other = streams()
    write = at_once(one)
    assert write(b"first")
    # The window has one message.
    assert not write(b"second")
    assert one.written == 5
    assert await other.read() == b"first"
    assert write(b"third")
    one.abort()
    assert not write(b"fourth")


async def test_a_call_of_grpc_always_waits() -> None:
    class Plain:
        async def read(self) -> Any:
            await asyncio.Event().wait()

        async def write(self, message: Any) -> None:
            pass

    assert not at_once(ByteStream(Plain()))(b"x")


async def test_no_frame_is_larger_than_agreed() -> None:
    call, other = pair()
    stream = ByteStream(call)
    writing = asyncio.create_task(stream.write(b"x" * (2 * FRAME_BYTES + 1)))
    sizes = [len(await other.read()) for _ in range(3)]
    await writing
    assert sizes == [FRAME_BYTES, FRAME_BYTES, 1]


async def test_one_side_ends_while_the_other_goes_on() -> None:
    one, other = streams()
    await one.close_write()
    assert await other.read() == b""
    await other.write(b"still")
    assert await one.read() == b"still"
    assert one.error is None


async def test_a_call_that_ends_before_its_sides_did_was_cut() -> None:
    call, _ = pair()
    stream = ByteStream(call)
    call.coming.put_nowait(grpc.aio.EOF)
    with pytest.raises(Unavailable) as caught:
        await stream.read()
    assert caught.value.reason == "cluster_unreachable"


async def test_a_refusal_names_its_reason() -> None:
    call, _ = pair()
    stream = ByteStream(call)
    call.coming.put_nowait(Chunk(error="No such namespace."))
    with pytest.raises(AppError, match="No such namespace") as caught:
        await stream.read()
    assert caught.value.reason == "target_refused"


async def test_a_pulse_is_not_data() -> None:
    call, _ = pair()
    stream = ByteStream(call)
    reading = asyncio.create_task(stream.read())
    await call.coming.put(Chunk(connection_id="-"))
    await call.coming.put(b"data")
    assert await reading == b"data"


@pytest.mark.parametrize("work", [lambda s: s.read(), lambda s: fill(s)], ids=["read", "write"])
async def test_abort_ends_what_waits_with_its_reason(
    work: Callable[[ByteStream], Awaitable[Any]],
) -> None:
    stream, _ = streams()
    waiting = asyncio.ensure_future(work(stream))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    stream.abort(NotFound("It is gone."))
    with pytest.raises(NotFound):
        await waiting
    for later in (stream.read(), stream.write(b"x"), stream.close_write(), stream.finished()):
        with pytest.raises(NotFound):
            await later
    await stream.close()


async def fill(stream: ByteStream) -> None:
    while True:
        await stream.write(b"x")


async def test_a_task_that_is_cancelled_stays_cancelled() -> None:
    stream, _ = streams()
    waiting = asyncio.create_task(stream.read())
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    # What the read may have lost is not hidden by later ones.
    with pytest.raises(Unavailable):
        await stream.read()


async def test_close_drops_what_is_still_said() -> None:
    one, other = streams()

    async def talk() -> None:
        for _ in range(5):
            await other.write(b"never heard")
        await other.close_write()

    await both(one.close(), talk())
    assert one.error is None


async def test_close_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(byte_stream, "CLOSE_SECONDS", 0.05)
    one, _ = streams()
    await one.close()
    assert one.error is not None


async def test_silence_for_too_long_is_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(byte_stream, "PULSE_SECONDS", 0.02)
    monkeypatch.setattr(byte_stream, "SILENT_SECONDS", 0.1)
    call, _ = pair()
    with pytest.raises(Unavailable, match="silent"):
        await asyncio.wait_for(ByteStream(call).read(), PATIENCE)


async def test_pulses_keep_an_idle_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(byte_stream, "PULSE_SECONDS", 0.02)
    monkeypatch.setattr(byte_stream, "SILENT_SECONDS", 1.0)
    one, other = streams()
    reading = [asyncio.create_task(stream.read()) for stream in (one, other)]
    done, _ = await asyncio.wait(reading, timeout=2.0)
    assert not done
    await one.write(b"at last")
    assert await reading[1] == b"at last"
    one.abort()
    other.abort()
    await asyncio.gather(*reading, return_exceptions=True)


async def test_splice_joins_two_and_ends_each_side_by_itself() -> None:
    near, one = streams()
    other, far = streams()
    joined = asyncio.create_task(splice(one, other))
    await near.write(b"ping")
    assert await far.read() == b"ping"
    await near.close_write()
    assert await far.read() == b""
    await far.write(b"pong")
    assert await near.read() == b"pong"
    await far.close_write()
    assert await near.read() == b""
    await asyncio.wait_for(joined, PATIENCE)


async def test_splice_cuts_one_when_the_other_is_cut_even_in_a_stall() -> None:
    near, one = streams()
    other, far = streams()
    joined = asyncio.create_task(splice(one, other))
    filling = asyncio.create_task(fill(near))
    await settled(lambda: near.written, 0.05)
    one.abort(refused("gone"))
    await asyncio.wait_for(joined, PATIENCE)
    assert other.error is not None
    filling.cancel()
    far.abort()
    await asyncio.gather(filling, return_exceptions=True)
