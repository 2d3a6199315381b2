"""One client's connection to the Kubernetes listener: heads are parsed, bytes pass both ways."""

import asyncio
import socket
from collections.abc import Callable
from typing import Any

from windlass.tunnel.http1 import END_OF_HEAD, HEAD_BYTES
from windlass.tunnel.http1_bodies import MalformedHttp

# What is kept of a client that sends faster than the tunnel takes.
AHEAD_BYTES = 128 * 1024
PIECE_BYTES = 64 * 1024
# A client that is gone without a word is found out within two minutes.
_KEEPALIVE = (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4))


class ClientConnection(asyncio.Protocol):
    """Bytes of one connection, with back-pressure both ways.

    One task reads while another writes. `on_left` is called when the connection is lost,
    and when the client ends its side of it: so a request is dropped whose client is gone.
    """

    def __init__(self, begin: Callable[["ClientConnection"], None]):
        self._begin = begin
        self._transport: Any = None
        self._over_tls = False
        # Its address; empty for a socket of this machine.
        self.peer = ""
        self._buffer = bytearray()
        self._reading: asyncio.Future[None] | None = None
        self._writing: asyncio.Future[None] | None = None
        self._reading_paused = False
        self._writing_paused = False
        self._ended = False
        self._lost = False
        self.on_left: Callable[[], None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begins to serve."""
        self._transport = transport
        peer = transport.get_extra_info("peername")
        self.peer = str(peer[0]) if isinstance(peer, tuple) else ""
        self._over_tls = transport.get_extra_info("ssl_object") is not None
        _keep_alive(transport.get_extra_info("socket"))
        self._begin(self)

    def data_received(self, data: bytes) -> None:
        """Buffers received bytes."""
        self._buffer += data
        if len(self._buffer) > AHEAD_BYTES and not self._reading_paused:
            self._reading_paused = True
            self._transport.pause_reading()
        _wake(self._reading)

    def eof_received(self) -> bool:
        """Notes that the client ended its side; the response is still sent if possible."""
        self._ended = True
        _wake(self._reading)
        self._left()
        # TLS has no half-closed connections here.
        return not self._over_tls

    def connection_lost(self, error: Exception | None) -> None:
        """Wakes pending reads and writes with an error."""
        self._ended = self._lost = True
        _wake(self._reading)
        _wake(self._writing)
        self._left()

    def pause_writing(self) -> None:
        """Pauses writes, since the client reads too slowly."""
        self._writing_paused = True

    def resume_writing(self) -> None:
        """Resumes writes, since the client has caught up."""
        self._writing_paused = False
        _wake(self._writing)

    def _left(self) -> None:
        if self.on_left is not None:
            self.on_left()

    @property
    def lost(self) -> bool:
        """True if nothing can be sent any more."""
        return self._lost or self._transport.is_closing()

    async def read_head(self) -> bytes | None:
        """The next head with its empty line, or None; raises MalformedHttp when it is too long."""
        seen = 0
        while True:
            end = self._buffer.find(END_OF_HEAD, seen)
            if end >= 0:
                return self._take(end + len(END_OF_HEAD))
            if len(self._buffer) > HEAD_BYTES:
                raise MalformedHttp("The head is too long.", status=431)
            if self._ended:
                return None
            seen = max(0, len(self._buffer) - len(END_OF_HEAD) + 1)
            await self._more()

    async def read(self, most: int = PIECE_BYTES) -> bytes:
        """The next bytes, b"" when the client has ended its side."""
        while not self._buffer and not self._ended:
            await self._more()
        return self._take(min(most, len(self._buffer)))

    async def write(self, data: bytes) -> None:
        """Sends; returns when there is room again; raises ConnectionError when it is lost."""
        if self.lost:
            raise ConnectionResetError("the client disconnected")
        self._transport.write(data)
        while self._writing_paused and not self._lost:
            self._writing = asyncio.get_running_loop().create_future()
            await self._writing

    def close(self) -> None:
        """Flushes the buffer, then closes the connection."""
        self._transport.close()

    def abort(self) -> None:
        """Resets the connection, so that a partial response is not taken for a whole one."""
        self._transport.abort()

    async def _more(self) -> None:
        if self._reading_paused:
            self._reading_paused = False
            self._transport.resume_reading()
        self._reading = asyncio.get_running_loop().create_future()
        await self._reading

    def _take(self, size: int) -> bytes:
        taken = bytes(memoryview(self._buffer)[:size])
        del self._buffer[:size]
        return taken


def _wake(waiting: "asyncio.Future[None] | None") -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(None)


def _keep_alive(connection: Any) -> None:
    if connection is None:
        return
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for name, value in _KEEPALIVE:
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
