"""Many calls of `Chunk`s over one gRPC call, at either end of it.

What they write within a moment goes out in one message, since a message costs gRPC as much as
100 KiB of it do. What comes is always read at once, so that nobody waits behind a reader who
does not read: each call's window bounds what waits for it.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from windlass.api.sessions.v1.sessions_pb2 import Chunk, Frame, Frames
from windlass.core import telemetry
from windlass.core.errors import AppError, InvalidArgument, from_rpc
from windlass.tunnel.byte_stream import PULSE_SECONDS, StreamCall, broken
from windlass.tunnel.chunks import Bytes
from windlass.tunnel.frames import DRAIN
from windlass.tunnel.multiplexed_call import (
    PIECE_BYTES,
    WAITING_BYTES,
    MultiplexedCall,
    chunk_size,
    set_once,
)

# Small messages follow each other at this pace, once so many went out faster.
PACE_SECONDS = 0.001
BURST = 64
# Where so many frames meet in one, the next waits twice as long for more.
BUSY_FRAMES = 5
# Of one peer that may be hostile: calls in a gRPC call, bytes and frames of a message. Ours has
# half a MiB and, since each counts 128 bytes, some 2500 frames.
MAX_CALLS = 400
MAX_BYTES = 2**20
MAX_FRAMES = 10_000

# A peer reads what comes at once: behind so long a wait for it there is nobody.
WRITE_SECONDS = 60.0
# One for all, since each would take half a KiB.
_EMPTY = Chunk()

log = telemetry.logger("tunnel")

Handle = Callable[[MultiplexedCall], Awaitable[None]]


class Multiplexer:
    """One end of a gRPC call of `Frames`; the client opens calls, the server handles them."""

    def __init__(self, call: StreamCall, handle: Handle | None = None, *, paces: bool = False):
        """`handle` serves a call that the peer has opened.

        An end that `paces` has small messages wait for each other where there are many.
        """
        self._call = call
        self._paces = paces
        self._handle = handle
        self._loop = asyncio.get_running_loop()
        self._calls: dict[int, MultiplexedCall] = {}
        self._handlers: dict[int, asyncio.Task[str]] = {}
        self._newest = 0
        self._ready: deque[MultiplexedCall] = deque()
        # What waits to be sent counts, each frame as its bytes and 128 more.
        self._size = 0
        self._writer: asyncio.Future[None] | None = None
        self._pausing = False
        # When, at the pace, the messages sent so far would all have been sent.
        self._due = 0.0
        self._pace = PACE_SECONDS
        self._drains = False
        self._ended: asyncio.Future[AppError | None] = self._loop.create_future()
        self._opened: asyncio.Future[None] = self._loop.create_future()
        # Who does not wait for it need not hear of it.
        self._opened.add_done_callback(lambda done: done.exception())
        self.retired = False

    async def run(self) -> None:
        """Carries calls until the gRPC call ends, which ends them all.

        Raises what broke it, grpc.aio.AioRpcError or AppError, and what `abort` was given.
        """
        tasks = [asyncio.create_task(self._read()), asyncio.create_task(self._write())]
        try:
            ends: list[asyncio.Future[Any]] = [*tasks, self._ended]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.retired = True
            failure = self._ended.result() if self._ended.done() else None
            if not self._opened.done():
                self._opened.set_exception(failure or broken())
            for call in self._calls.values():
                call.fail(failure or broken())
            left = [*tasks, *self._handlers.values()]
            for task in left:
                task.cancel()
            found = await asyncio.gather(*left, return_exceptions=True)
        if failure is not None:
            raise failure
        for error in found[: len(tasks)]:
            if isinstance(error, Exception):
                raise error

    @property
    def load(self) -> int:
        """Number of calls that are open."""
        return len(self._calls)

    def open(self, first: Chunk) -> MultiplexedCall:
        """A new call, which begins with a chunk."""
        self._newest += 1
        call = self._calls[self._newest] = MultiplexedCall(self._newest, self._stir)
        # At once, since the server takes calls in the order of their numbers alone.
        call.put_chunk(first)
        return call

    async def opened(self) -> None:
        """Returns once the server has answered; raises AppError if it does not."""
        await asyncio.shield(self._opened)

    def retire(self) -> None:
        """Opens no more calls, and ends with the last of those that are open."""
        self.retired = True
        if not self._calls:
            if not self._opened.done():
                # Who waits for it goes another way.
                self._opened.set_result(None)
            self.abort()

    def drain(self) -> None:
        """Asks the client to open further calls elsewhere."""
        self._drains = True
        self._wake()

    def abort(self, error: AppError | None = None) -> None:
        """Ends the gRPC call and all over it."""
        self.retired = True
        if not self._ended.done():
            self._ended.set_result(error)

    async def _read(self) -> None:
        while (raw := await self._call.read()) is not grpc.aio.EOF:
            if not self._opened.done():
                self._opened.set_result(None)
            message = self._decoded(raw)
            for frame in message.frames:
                self._take(frame)
            if message.drain:
                self.retire()

    def _decoded(self, raw: bytes) -> Frames:
        self._check(len(raw) <= MAX_BYTES)
        try:
            message = Frames.FromString(raw)
        except DecodeError as error:
            raise InvalidArgument(f"These are no frames: {error}") from error
        self._check(len(message.frames) <= MAX_FRAMES)
        return message

    def _take(self, frame: Frame) -> None:
        kind = frame.WhichOneof("content")
        call = self._calls.get(frame.stream)
        if call is None:
            if kind != "chunk" or self._handle is None or frame.stream <= self._newest:
                # What was under way when the call ended.
                return
            call = self._begin(frame.stream, self._handle)
        if kind == "data":
            data = frame.data
            # Without bytes it is what an empty chunk is, the end of a side.
            self._check(call.accept(data or _EMPTY, len(data)))
        elif kind == "taken":
            call.grant(frame.taken)
        elif kind == "chunk":
            # Not of the message, which would be kept whole with it.
            chunk = Chunk()
            chunk.CopyFrom(frame.chunk)
            self._check(call.accept(chunk, chunk_size(chunk)))
        elif kind == "over":
            call.fail(
                broken(f"The peer ended the connection: {frame.over}.") if frame.over else None
            )
            if handler := self._handlers.get(frame.stream):
                handler.cancel()
            else:
                self._forget(call)

    def _begin(self, number: int, handle: Handle) -> MultiplexedCall:
        self._newest = number
        self._check(len(self._calls) < MAX_CALLS)
        call = self._calls[number] = MultiplexedCall(number, self._stir)
        task = self._handlers[number] = asyncio.create_task(_served(call, handle))
        task.add_done_callback(lambda done: self._finish(call, done))
        return call

    def _finish(self, call: MultiplexedCall, handler: asyncio.Task[str]) -> None:
        del self._handlers[call.number]
        call.finish("cancelled" if handler.cancelled() else handler.result())

    def _check(self, kept: bool) -> None:
        if not kept:
            raise InvalidArgument("The peer does not keep to the limits of the tunnel.")

    def _forget(self, call: MultiplexedCall) -> None:
        if self._calls.pop(call.number, None) and self.retired and not self._calls:
            self.abort()

    def _stir(self, call: MultiplexedCall, size: int) -> None:
        self._size += size
        if not call.queued and call.has_more:
            call.queued = True
            self._ready.append(call)
            self._wake()
        elif self._pausing and self._size >= PIECE_BYTES:
            self._wake()

    def _wake(self) -> None:
        if not self._pausing or self._drains or self._size >= PIECE_BYTES:
            set_once(self._writer)

    async def _write(self) -> None:
        if self._handle is not None:
            await self._call.write(b"")
        while True:
            if not self._ready and not self._drains:
                await self._wait(PULSE_SECONDS)
            waited = self._paces and self._size < PIECE_BYTES and await self._pause()
            frames, count = self._collected()
            self._pace = 2 * PACE_SECONDS if count >= BUSY_FRAMES else PACE_SECONDS
            if waited and count == 1:
                # Nobody writes beside: to wait again would only be late.
                self._due = 0.0
            await self._sent(frames)

    async def _sent(self, frames: bytes) -> None:
        try:
            async with asyncio.timeout(WRITE_SECONDS):
                await self._call.write(frames)
        except TimeoutError:
            raise broken("The peer reads nothing.") from None

    async def _pause(self) -> bool:
        """Waits for more to send, if that would be too soon; returns True if it waited."""
        now = self._loop.time()
        due = max(self._due, now - BURST * PACE_SECONDS)
        waits = due > now
        if waits:
            self._pausing = True
            await self._wait(due - now)
            self._pausing = False
            # Earlier, where much has come meanwhile.
            due = min(due, self._loop.time())
        self._due = due + self._pace
        return waits

    async def _wait(self, seconds: float) -> None:
        """Returns when there is something to do, and after that time in any case."""
        self._writer = self._loop.create_future()
        timer = self._loop.call_later(seconds, set_once, self._writer)
        try:
            await self._writer
        finally:
            timer.cancel()

    def _collected(self) -> tuple[bytes, int]:
        """The next frames, each call's in turn, encoded, and how many calls had a turn."""
        parts: list[Bytes] = [DRAIN] if self._drains else []
        self._drains, size, count = False, 0, 0
        while self._ready and size < WAITING_BYTES:
            call = self._ready.popleft()
            size += call.collect(parts)
            count += 1
            call.queued = call.has_more
            if call.queued:
                self._ready.append(call)
            elif call.silent:
                self._forget(call)
        self._size -= size
        return b"".join(parts), count


async def _served(call: MultiplexedCall, handle: Handle) -> str:
    """Serves a call; returns why it ended early, or nothing."""
    try:
        await handle(call)
        return ""
    except AppError as error:
        return error.message
    except grpc.aio.AioRpcError as error:
        return from_rpc(error).message
    except Exception as error:
        log.error("connection_failed", exc_info=error)
        return "Something went wrong."
