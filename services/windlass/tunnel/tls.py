"""TLS over the plain transport of any event loop, which loses nothing to a slow reader.

uvloop's own drops what is not decrypted yet when the other side ends its connection while
reading is paused (`eof_received` in its sslproto.pyx): the end of a long answer, where that
is taken more slowly than it comes. Here what has come is kept, and is told before the end.
"""

import asyncio
import contextlib
import ssl
from typing import Any, Protocol

# What one call of `data_received` tells at most, give or take a record.
PIECE_BYTES = 64 * 1024
RECORD_BYTES = 16 * 1024
# For the handshake, and for the other side to take what was sent before a close.
PATIENCE_SECONDS = 10.0


class Inner(Protocol):
    """A protocol of asyncio, which gets bytes."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The handshake is done."""

    def data_received(self, data: bytes) -> None:
        """Bytes came."""

    def eof_received(self) -> bool | None:
        """No more will come; the transport closes by itself."""

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""

    def pause_writing(self) -> None:
        """Asks the writer to stop: the buffer is full."""

    def resume_writing(self) -> None:
        """Asks the writer to go on: there is room again."""


class TlsTransport(asyncio.Protocol, asyncio.Transport):
    """The protocol of a plain transport, and itself the transport of `inner`.

    `inner` is connected once the handshake is done.
    """

    def __init__(
        self,
        inner: Inner,
        context: ssl.SSLContext,
        *,
        server_side: bool = False,
        server_name: str | None = None,
    ):
        super().__init__()
        self._inner = inner
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._incoming, self._outgoing, server_side=server_side, server_hostname=server_name
        )
        self._loop = asyncio.get_running_loop()
        self._plain: Any = None
        self._timer: asyncio.TimerHandle | None = None
        # The plain connection has no more to say; it is gone; all of it was told; and that.
        self._ended = self._lost = self._over = self._told = False
        self._paused = self._closing = False
        self._error: Exception | None = None
        self._ready: asyncio.Future[None] = self._loop.create_future()
        # Who does not wait for it need not hear of it.
        self._ready.add_done_callback(lambda done: done.exception())

    async def ready(self) -> None:
        """Returns when the handshake is done.

        Raises ssl.SSLError, or ConnectionError when the other side leaves before.
        """
        await asyncio.shield(self._ready)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Shakes hands."""
        self._plain = transport
        self._timer = self._loop.call_later(PATIENCE_SECONDS, self.abort)
        self._shake()

    def data_received(self, data: bytes) -> None:
        """Decrypts."""
        self._incoming.write(data)
        if self._ready.done():
            self._read()
        else:
            self._shake()

    def eof_received(self) -> bool:
        """The other side has ended; what it has said is still to be told."""
        self._ended = True
        if self._ready.done():
            self._read()
            return True
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends the transport; what has come is delivered first, unless we have closed."""
        self._ended = self._lost = True
        self._error = self._error or exc
        if self._timer is not None:
            self._timer.cancel()
        if not self._ready.done():
            left = ConnectionResetError("The other side left during the TLS handshake.")
            self._ready.set_exception(exc or left)
        elif self._over or self._closing:
            self._tell_loss()
        else:
            self._read()

    def pause_writing(self) -> None:
        """The plain transport is full."""
        if self._connected:
            self._inner.pause_writing()

    def resume_writing(self) -> None:
        """Lets the protocol write again: the connection has room."""
        if self._connected:
            self._inner.resume_writing()

    # What follows is a transport, as far as protocols of ours use one.

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """`ssl_object`, and what the plain transport knows."""
        return self._tls if name == "ssl_object" else self._plain.get_extra_info(name, default)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Encrypts and sends."""
        if self._closing or self._lost:
            return
        view = memoryview(data)
        while view:
            view = view[self._tls.write(view) :]
        self._flush()

    def can_write_eof(self) -> bool:
        """TLS ends both sides or none."""
        return False

    def is_closing(self) -> bool:
        """Returns True if nothing can be sent any more."""
        return bool(self._closing or self._lost or self._plain.is_closing())

    def pause_reading(self) -> None:
        """Tells no more, and lets the socket's own window fill."""
        self._paused = True
        if not self._ended:
            self._plain.pause_reading()

    def resume_reading(self) -> None:
        """Tells what has come, then what comes."""
        self._paused = False
        if not self._ended:
            self._plain.resume_reading()
        self._loop.call_soon(self._read)

    def close(self) -> None:
        """Sends what was written, ends both sides, and cuts one that does not take it in time."""
        if self._lost:
            self.abort()
        if self._closing:
            return
        self._closing = True
        # It is sent; that the other side's own has not come is no matter.
        with contextlib.suppress(ssl.SSLError):
            self._tls.unwrap()
        self._flush()
        self._plain.close()
        self._timer = self._loop.call_later(PATIENCE_SECONDS, self._plain.abort)

    def abort(self) -> None:
        """Ends both sides at once."""
        self._closing = True
        self._plain.abort()
        if self._lost:
            # It was not told yet, since there was more to read.
            self._loop.call_soon(self._tell_loss)

    @property
    def _connected(self) -> bool:
        return self._ready.done() and self._ready.exception() is None

    def _shake(self) -> None:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return
        except (ssl.SSLError, OSError) as error:
            # Why not, goes out before the end.
            self._flush()
            self._ready.set_exception(error)
            self._plain.close()
            return
        self._flush()
        if self._timer is not None:
            self._timer.cancel()
        self._ready.set_result(None)
        self._inner.connection_made(self)
        self._read()

    def _flush(self) -> None:
        if self._outgoing.pending:
            self._plain.write(self._outgoing.read())

    def _read(self) -> None:
        while not (self._paused or self._over or self._closing):
            data, ended = self._decrypt()
            if data:
                self._inner.data_received(data)
            if ended:
                self._over = True
                self._inner.eof_received()
                self._tell_loss() if self._lost else self.close()
            elif len(data) < PIECE_BYTES:
                return

    def _decrypt(self) -> tuple[bytes, bool]:
        """The decrypted bytes that have come, up to a piece, and whether they are the last."""
        pieces: list[bytes] = []
        size = 0
        try:
            while size < PIECE_BYTES:
                piece = self._tls.read(RECORD_BYTES)
                if not piece:
                    return b"".join(pieces), True
                pieces.append(piece)
                size += len(piece)
                if not (self._incoming.pending or self._ended or self._tls.pending()):
                    # As mostly: to be told so by an exception would cost as much again.
                    self._flush()
                    break
        except ssl.SSLWantReadError:
            # An answer to what TLS asks of itself, such as for new keys.
            self._flush()
            return b"".join(pieces), self._ended
        except ssl.SSLZeroReturnError:
            return b"".join(pieces), True
        except (ssl.SSLError, OSError) as error:
            self._error = self._error or error
            return b"".join(pieces), True
        return pieces[0] if len(pieces) == 1 else b"".join(pieces), False

    def _tell_loss(self) -> None:
        if self._connected and not self._told:
            self._told = True
            self._inner.connection_lost(self._error)
