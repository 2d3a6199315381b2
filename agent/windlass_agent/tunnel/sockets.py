"""One end of a socket as a stream: what is read waits, what is written is waited for."""

import asyncio
import contextlib
import socket
import ssl
import struct
from collections import deque
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

from windlass.core.errors import AppError
from windlass.tunnel.byte_stream import FRAME_BYTES, broken
from windlass.tunnel.chunks import Bytes
from windlass.tunnel.loss import detect_loss
from windlass.tunnel.tls import TlsTransport

# Read ahead of the reader; beyond, the socket's own window fills.
MAX_WAITING = FRAME_BYTES
READ_BYTES = FRAME_BYTES
CONNECT_SECONDS = 8.0
# For SO_LINGER: the system would go on sending what is buffered, for as long as it likes.
_AT_ONCE = struct.pack("ii", 1, 0)


# What a loop reads into, whichever socket it reads: nothing stays there.
_buffers: "WeakKeyDictionary[asyncio.AbstractEventLoop, memoryview]" = WeakKeyDictionary()


class Socket(asyncio.BufferedProtocol):
    """Reads in one task, writes in another."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        if self._loop not in _buffers:
            _buffers[self._loop] = memoryview(bytearray(READ_BYTES))
        self._buffer = _buffers[self._loop]
        self._transport: Any = None
        self._waiting: deque[bytes] = deque()
        self._size = 0
        self._ended = self._lost = self._paused = self._full = False
        self._reader: asyncio.Future[None] | None = None
        self._pass: Callable[[bytes], bool] | None = None
        self._writer: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is open."""
        self._transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        """The buffer to read into."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Keeps what came."""
        self.data_received(bytes(self._buffer[:nbytes]))

    def data_received(self, data: bytes) -> None:
        """Keeps what came, over TLS; stops the socket when that is too much."""
        awaited = self._reader is not None and not self._reader.done()
        if self._pass is not None and awaited and self._pass(data):
            return
        self._waiting.append(data)
        self._size += len(data)
        if self._size > MAX_WAITING and not self._paused:
            self._paused = True
            self._transport.pause_reading()
        _wake(self._reader)

    def eof_received(self) -> bool:
        """The other side has ended; ours may go on, but not over TLS."""
        self._ended = True
        _wake(self._reader)
        return bool(self._transport.can_write_eof())

    def connection_lost(self, exc: Exception | None) -> None:
        """Neither side goes on."""
        self._lost = self._ended = True
        _wake(self._reader)
        _wake(self._writer)

    def pause_writing(self) -> None:
        """The socket's buffer is full."""
        self._full = True

    def resume_writing(self) -> None:
        """Lets `write` go on: the socket has room again."""
        self._full = False
        _wake(self._writer)

    @property
    def idle(self) -> bool:
        """True if it is open and nothing came unasked, so that it can be used again."""
        return not (self._ended or self._waiting or self._transport.is_closing())

    async def read(self) -> bytes:
        """The bytes that have come, at once when there are some; b"" at the end."""
        while not self._waiting:
            if self._ended:
                return b""
            self._reader = self._loop.create_future()
            await self._reader
        if len(self._waiting) == 1 or len(self._waiting[0]) >= FRAME_BYTES:
            data = self._waiting.popleft()
        else:
            data = b"".join(self._waiting)
            self._waiting.clear()
        self._size -= len(data)
        if self._paused and self._size < MAX_WAITING // 2:
            self._paused = False
            self._transport.resume_reading()
        return data

    def pass_on(self, take: Callable[[bytes], bool] | None) -> None:
        """Hands what comes while a task reads to `take` at once, which spares that task a turn of
        the loop; what it returns False for is read as ever.
        """
        self._pass = take

    async def write(self, data: Bytes) -> None:
        """Sends; returns when the buffer has room. Raises AppError."""
        if self._lost or self._transport.is_closing():
            raise broken("The target has closed the connection.")
        self._transport.write(data)
        while self._full and not self._lost:
            self._writer = self._loop.create_future()
            await self._writer

    async def close_write(self) -> None:
        """Ends our side alone, which TLS cannot."""
        if not self._lost and self._transport.can_write_eof():
            self._transport.write_eof()

    def abort(self, error: AppError | None = None) -> None:
        """Closes both sides at once, and drops what the other has not taken."""
        socket_ = self._transport.get_extra_info("socket")
        if socket_ is not None and not self._lost:
            with contextlib.suppress(OSError):
                socket_.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
        self._transport.abort()

    def close(self) -> None:
        """Closes both sides in order."""
        self._transport.close()


def _wake(waiter: asyncio.Future[None] | None) -> None:
    if waiter is not None and not waiter.done():
        waiter.set_result(None)


async def connect(
    host: str,
    port: int,
    *,
    tls: ssl.SSLContext | None = None,
    server_name: str = "",
    may_stall: bool = False,
) -> Socket:
    """A TCP connection, to a target that `may_stall` if it can read nothing for long.

    Raises OSError, TimeoutError among them.
    """
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(CONNECT_SECONDS):
        made = Socket()
        secured = TlsTransport(made, tls, server_name=server_name or host) if tls else None
        transport, _ = await loop.create_connection(lambda: secured or made, host, port)
        detect_loss(transport.get_extra_info("socket"), may_stall=may_stall)
        if secured is None:
            return made
        try:
            await secured.ready()
        except BaseException:
            secured.abort()
            raise
        return made


async def connect_unix(path: str) -> Socket:
    """A connection to a Unix socket; raises OSError."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(CONNECT_SECONDS):
        return (await loop.create_unix_connection(Socket, path))[1]
