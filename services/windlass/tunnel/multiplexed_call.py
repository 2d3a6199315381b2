"""One of the calls that share a gRPC call: what HTTP/2 would give it, a window and an end."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

import grpc

from windlass.api.sessions.v1.sessions_pb2 import Chunk, Frame
from windlass.core.errors import AppError
from windlass.tunnel.byte_stream import broken
from windlass.tunnel.chunks import Bytes
from windlass.tunnel.frames import encode_data, encode_frame

# What a writer may be ahead of its reader, whose memory it is. Half of it is given back at a time,
# by a message of its own: with half a MiB that cost bulk a quarter of its rate.
WINDOW_BYTES = 1024 * 1024
# What a frame counts beside its bytes, so that a window of tiny ones stays small in memory.
FRAME_COST = 128
# And a chunk, which becomes an object at the peer.
CHUNK_COST = 1024
# Largest frame: others come in between two of them.
PIECE_BYTES = 64 * 1024
# What may wait to be sent: enough for one message of a writer that has the line to itself.
WAITING_BYTES = 4 * PIECE_BYTES


def chunk_size(chunk: Chunk) -> int:
    """Count of a chunk at both ends, one that does not only carry bytes."""
    return chunk.ByteSize() + CHUNK_COST


class MultiplexedCall:
    """A `StreamCall`: one task reads and one writes, each `Chunk`s or the bytes of one.

    Both raise the AppError that ended the call early.
    """

    def __init__(self, number: int, stir: Callable[["MultiplexedCall", int], None]):
        """`stir` says that there is something to send, and how much more that is."""
        self.number = number
        # Whether the multiplexer knows that there is something to send.
        self.queued = False
        # Nothing more will be sent.
        self.silent = False
        self._stir = stir
        self._loop = asyncio.get_running_loop()
        self._came: deque[tuple[Chunk | bytes, int]] = deque()
        self._held = self._owed = 0
        self._room = WINDOW_BYTES
        # Parts of frames, and what each counts.
        self._pending: deque[tuple[tuple[Bytes, ...], int]] = deque()
        self._waiting = 0
        self._last: str | None = None
        self._reader: asyncio.Future[None] | None = None
        self._writer: asyncio.Future[None] | None = None
        self._error: AppError | None = None
        self._over: asyncio.Future[None] = self._loop.create_future()

    async def read(self) -> Any:
        """The next chunk, or its bytes where it has no more; grpc.aio.EOF at the end."""
        while not self._came:
            if self._over.done():
                return self._ended()
            self._reader = self._loop.create_future()
            await self._reader
        chunk, cost = self._came.popleft()
        self._held -= cost
        self._owed += cost
        if self._owes:
            self._stir(self, 0)
        return chunk

    async def write(self, chunk: Chunk | Bytes) -> None:
        """Sends; returns when there is room for more."""
        if isinstance(chunk, Chunk):
            await self._room_for(chunk_size(chunk))
            self.put_chunk(chunk)
            return
        # Later changes of the caller's buffer are not sent.
        data = chunk if isinstance(chunk, bytes) else bytes(chunk)
        if len(data) <= PIECE_BYTES:
            await self._send(data)
            return
        view = memoryview(data)
        for start in range(0, len(view), PIECE_BYTES):
            await self._send(view[start : start + PIECE_BYTES])

    def write_now(self, data: bytes) -> None:
        """Sends bytes for which there is room."""
        self._put(encode_data(self.number, data), len(data))

    def has_room(self, size: int) -> bool:
        """Returns True if so many bytes can be sent without waiting."""
        return size <= PIECE_BYTES and self._has_room(size) and not self._over.done()

    async def _send(self, data: Bytes) -> None:
        await self._room_for(len(data))
        self._put(encode_data(self.number, data), len(data))

    def _has_room(self, size: int) -> bool:
        return self._room >= size + FRAME_COST and self._waiting < WAITING_BYTES

    async def _room_for(self, size: int) -> None:
        while not self._over.done() and not self._has_room(size):
            self._writer = self._loop.create_future()
            await self._writer
        if self._over.done():
            raise self._error or broken("The call is over.")

    def _put(self, frame: tuple[Bytes, ...], size: int) -> None:
        cost = size + FRAME_COST
        self._room -= cost
        self._waiting += cost
        self._pending.append((frame, cost))
        self._stir(self, cost)

    def cancel(self) -> None:
        """Ends the call at once, for the peer too."""
        if not self._over.done():
            self.finish("cancelled")
            self.fail(broken("The connection was ended."))

    async def done_writing(self) -> None:
        """Exists since calls of gRPC have it: the end of a side is a chunk."""

    async def code(self) -> None:
        """Returns once the call is over for the peer too."""
        await asyncio.shield(self._over)

    # What follows is for the multiplexer.

    def put_chunk(self, chunk: Chunk) -> None:
        """Sends a chunk for which there is room."""
        self._put(encode_frame(Frame(stream=self.number, chunk=chunk)), chunk_size(chunk))

    def accept(self, chunk: Chunk | bytes, size: int) -> bool:
        """Keeps what came for the reader; False if there is no room for it."""
        self._held += size + FRAME_COST
        if self._held + self._owed > WINDOW_BYTES:
            return False
        # Of a call whose handler has ended, nobody reads any more.
        if not self._over.done() and self._last is None:
            self._came.append((chunk, size + FRAME_COST))
            set_once(self._reader)
        return True

    def grant(self, taken: int) -> None:
        """The peer has read some more."""
        self._room = min(self._room + taken, WINDOW_BYTES)
        set_once(self._writer)

    def finish(self, why: str = "") -> None:
        """Sends the end: behind what is to be sent, or early, and instead of that.

        Nobody reads after it.
        """
        if self._last is None:
            self._last = why
            self._came.clear()
            self._stir(self, self._drop() if why else 0)

    def fail(self, error: AppError | None = None) -> None:
        """The peer has ended the call, or lost it early: what it sent before is then dropped."""
        if not self._over.done():
            self._over.set_result(None)
            self._error = error
            if error is not None:
                self._came.clear()
            self._stir(self, self._drop())
            set_once(self._reader)
            set_once(self._writer)

    def collect(self, parts: list[Bytes]) -> int:
        """Adds the parts of what may be sent now, one frame with data at most; returns its cost."""
        if self._owes:
            parts += encode_frame(Frame(stream=self.number, taken=self._owed))
            self._owed = 0
        cost = 0
        if self._pending:
            frame, cost = self._pending.popleft()
            parts += frame
            self._waiting -= cost
            if self._waiting < WAITING_BYTES:
                set_once(self._writer)
        elif self._last is not None and not self.silent:
            parts += encode_frame(Frame(stream=self.number, over=self._last))
            self.silent = True
        return cost

    @property
    def has_more(self) -> bool:
        """True if there is something to send."""
        return bool(self._pending) or self._owes or (self._last is not None and not self.silent)

    @property
    def _owes(self) -> bool:
        return self._owed >= WINDOW_BYTES // 2 and not self._over.done()

    def _ended(self) -> Any:
        if self._error is not None:
            raise self._error
        return grpc.aio.EOF

    def _drop(self) -> int:
        """Drops what was not sent yet; returns by how much less there is to send."""
        dropped, self._waiting = self._waiting, 0
        self._pending.clear()
        return -dropped


def set_once(waiter: asyncio.Future[None] | None) -> None:
    """Wakes who waits, if anybody does."""
    if waiter is not None and not waiter.done():
        waiter.set_result(None)
