"""A two-way stream of bytes over one gRPC call of `Chunk`s, at either end of the call.

The call's own flow control is the stream's: a write returns when the peer's window has room.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar, runtime_checkable

import grpc

from windlass.api.sessions.v1.sessions_pb2 import Chunk
from windlass.core import telemetry
from windlass.core.errors import AppError, FailedPrecondition, Unavailable, from_rpc
from windlass.core.killpoints import reach
from windlass.tunnel.chunks import Bytes, decode, encode

# What one chunk carries at most, so that one read answers at most this. A message costs gRPC
# as much as 100 KiB of it do.
FRAME_BYTES = 256 * 1024
# Proxies on the way cut what was silent for a minute.
PULSE_SECONDS = 20.0
# Four pulses missed while we were listening.
SILENT_SECONDS = 90.0
# For the peer to end its side after we closed ours.
CLOSE_SECONDS = 2.0

log = telemetry.logger("tunnel")
_settling: set[asyncio.Task[None]] = set()
T = TypeVar("T")


class StreamCall(Protocol):
    """Interface of a client's stream-stream call and a servicer's context.

    Chunks that only carry bytes are those bytes: see `windlass.tunnel.chunks`.
    """

    def read(self) -> Awaitable[Any]:
        """The next chunk, or grpc.aio.EOF."""

    def write(self, message: Any, /) -> Awaitable[None]:
        """Sends one."""


@runtime_checkable
class Unwaited(Protocol):
    """Interface of a call that can write without waiting, as one of gRPC cannot."""

    def has_room(self, size: int) -> bool:
        """Returns True if so many bytes can be sent without waiting."""

    def write_now(self, data: bytes) -> object:
        """Sends bytes for which there is room."""


class Waited:
    """A call that always has to wait."""

    def has_room(self, size: int) -> bool:
        """Returns False."""
        return False

    def write_now(self, data: bytes) -> None:
        """Does nothing, since there is never room."""


def broken(why: str = "The tunnel broke.") -> Unavailable:
    """The connection was cut before both sides had ended."""
    return Unavailable(why, reason="cluster_unreachable")


def refused(why: str) -> FailedPrecondition:
    """The agent will not, or cannot, connect to the target."""
    return FailedPrecondition(why, reason="target_refused")


class ByteStream:
    """Reads in one task, writes in another. A cancelled read or write ends the whole stream.

    `cancel` ends the call under it at once. A servicer's call ends with its handler, which
    waits for `finished`; the peer hears of it behind all that it has not taken yet.
    """

    def __init__(self, call: StreamCall, *, cancel: Callable[[], object] = lambda: None):
        self._call: StreamCall | None = call
        self._cancel = cancel
        self._unwaited = call if isinstance(call, Unwaited) else Waited()
        self._error: AppError | None = None
        self._peer_ended = self._ended = False
        self._waiters: set[asyncio.Task[Any]] = set()
        self._sending = False
        self._loop = asyncio.get_running_loop()
        self._over: asyncio.Future[None] = self._loop.create_future()
        self._wrote_at = time.monotonic()
        # Whether its bytes go through another replica as well.
        self.relayed = False
        # Bytes that the peer's window had room for, by whole writes.
        self.written = 0
        self._reading_since = 0.0
        self._pulse = self._loop.call_later(PULSE_SECONDS, self._beat)
        self._beating: asyncio.Task[None] | None = None

    async def read(self) -> bytes:
        """The next bytes; b"" once the peer has ended its side. Raises AppError."""
        while not self._peer_ended:
            self._reading_since = time.monotonic()
            chunk = await self._guarded(self._open().read())
            self._reading_since = 0.0
            if isinstance(chunk, bytes):
                return chunk
            self._take(chunk)
        return b""

    def _take(self, chunk: Any) -> None:
        """Handles a frame that is no data: an end, a pulse, or a failure, which is raised."""
        if chunk is grpc.aio.EOF:
            self.abort(broken())
        elif chunk.error:
            self.abort(refused(chunk.error))
        elif not chunk.connection_id:
            self._peer_ended = True
            self._end_if_both()
            return
        if self._error is not None:
            raise self._error

    async def write(self, data: Bytes) -> None:
        """Sends; raises AppError."""
        if len(data) <= FRAME_BYTES:
            await self._send(data)
        else:
            view = memoryview(data)
            for start in range(0, len(view), FRAME_BYTES):
                await self._send(view[start : start + FRAME_BYTES])
        self.written += len(data)
        reach("tunnel.written")

    def write_now(self, data: bytes) -> bool:
        """Sends bytes for which there is room, while no task writes; returns True."""
        self._unwaited.write_now(data)
        self._wrote_at = time.monotonic()
        self.written += len(data)
        reach("tunnel.written")
        return True

    def has_room(self, size: int) -> bool:
        """Returns True if `write_now` can send so many bytes, without waiting."""
        beats = self._beating is not None and not self._beating.done()
        return not beats and self._call is not None and self._unwaited.has_room(size)

    async def close_write(self) -> None:
        """Ends our side alone; raises AppError."""
        if not self._ended:
            await self._send(Chunk())
            reach("tunnel.side_ended")
            self._ended = True
            self._end_if_both()

    async def close(self) -> None:
        """Ends our side and drops what the peer still says; cuts the call if it goes on."""
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await self.close_write()
                while await self.read():
                    pass
        except (AppError, TimeoutError):
            self.abort()

    def abort(self, error: AppError | None = None) -> None:
        """Ends it at once; pending and later reads and writes raise `error`."""
        if self._error is not None or self._over.done():
            return
        self._error = error or broken("The connection was ended.")
        for task in self._waiters:
            task.cancel()
        self._finish()
        self._cancel()

    @property
    def error(self) -> AppError | None:
        """The failure that ended the stream early; None without one."""
        return self._error

    def when_over(self, call: Callable[[], object]) -> None:
        """Calls back once the stream is over, in whatever way."""
        self._over.add_done_callback(lambda _: call())

    def when_cut(self, call: Callable[[AppError], object]) -> None:
        """Calls back if the stream ends before both sides have ended it."""
        self.when_over(lambda: self._error is not None and call(self._error))

    async def finished(self) -> None:
        """Returns when both sides have ended; raises what cut the stream before."""
        try:
            await asyncio.shield(self._over)
        except asyncio.CancelledError:
            self.abort(broken())
            raise
        if self._error is not None:
            raise self._error

    def _open(self) -> StreamCall:
        if self._error is not None:
            raise self._error
        if self._call is None:
            raise broken("The connection is closed.")
        return self._call

    def _end_if_both(self) -> None:
        if self._ended and self._peer_ended and not self._over.done():
            self._finish()

    def _finish(self) -> None:
        self._pulse.cancel()
        if self._beating is not None:
            self._beating.cancel()
        self._call = None
        self._over.set_result(None)

    async def _send(self, chunk: Chunk | Bytes) -> None:
        if self._beating is not None:
            await asyncio.wait((self._beating,))
            self._beating = None
        self._sending = True
        try:
            await self._guarded(self._open().write(chunk))
        finally:
            self._sending = False
        self._wrote_at = time.monotonic()

    async def _guarded(self, operation: Awaitable[T]) -> T:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a stream is read and written by tasks")
        self._waiters.add(task)
        try:
            return await operation
        except asyncio.CancelledError:
            self._waiters.discard(task)
            if self._error is not None and task.uncancel() == 0:
                raise self._error from None
            self.abort()
            raise
        except grpc.aio.AioRpcError as error:
            failure = _translated(error)
        except AppError as error:
            failure = error
        except Exception as error:
            log.debug("call_failed", error=repr(error))
            failure = broken()
        finally:
            self._waiters.discard(task)
        self.abort(failure)
        raise self._error or failure

    def _beat(self) -> None:
        now = time.monotonic()
        if self._reading_since and now - self._reading_since > SILENT_SECONDS:
            self.abort(broken("The tunnel went silent."))
            return
        self._pulse = self._loop.call_later(PULSE_SECONDS, self._beat)
        if now - self._wrote_at >= PULSE_SECONDS and not self._sending:
            self._beating = self._loop.create_task(self._send_pulse())

    async def _send_pulse(self) -> None:
        with contextlib.suppress(AppError):
            await self._guarded(self._open().write(Chunk(connection_id="-")))
            self._wrote_at = time.monotonic()


class ForwardStub:
    """`SessionsInternalService.Forward` on a channel, in chunks."""

    def __init__(self, channel: grpc.aio.Channel):
        self.Forward: Callable[..., Any] = channel.stream_stream(
            "/windlass.api.sessions.v1.SessionsInternalService/Forward",
            request_serializer=encode,
            response_deserializer=decode,
        )


def over_call(call: Any) -> ByteStream:
    """The stream at the client's end of a call, whose status is heard out at the end."""
    stream = ByteStream(call, cancel=call.cancel)

    async def settle() -> None:
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            await call.done_writing()
            await call.code()

    def over() -> None:
        if stream.error is None:
            _settling.add(task := asyncio.create_task(settle()))
            task.add_done_callback(_settling.discard)

    stream.when_over(over)
    return stream


def at_once(stream: ByteStream) -> Callable[[bytes], bool]:
    """Writes to a stream what needs no wait; returns False, having written nothing, of the rest."""
    return lambda data: stream.has_room(len(data)) and stream.write_now(data)


def _translated(error: grpc.aio.AioRpcError) -> AppError:
    translated = from_rpc(error)
    if translated.reason == translated.default_reason:
        return broken(f"The tunnel broke: {error.details() or error.code().name}.")
    return translated
