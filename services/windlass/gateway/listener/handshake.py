"""TLS connections that are counted and limited during their handshake.

A loop's own TLS server tells nobody of a connection until its handshake is done.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable

from windlass.gateway.listener.connection_limiter import ConnectionLimiter, Use
from windlass.metrics.gateway import CLOSED

# After an error of accept, such as too many open files.
PAUSE_SECONDS = 0.1


class TlsServer:
    """Accepts connections until closed; made where a loop runs."""

    def __init__(
        self,
        listening: socket.socket,
        context: ssl.SSLContext,
        limiter: ConnectionLimiter,
        make: Callable[[], asyncio.Protocol],
        *,
        backlog: int,
    ):
        self._listening = listening
        self._context = context
        self._limiter = limiter
        self._make = make
        listening.setblocking(False)
        listening.listen(backlog)
        self._handshakes: set[asyncio.Task[None]] = set()
        self._accepting = asyncio.create_task(self._accept(), name="accept")

    def close(self) -> None:
        """Stops accepting connections; open ones stay."""
        self._accepting.cancel()
        self._listening.close()

    async def wait_closed(self) -> None:
        """Waits for the end of the accepting."""
        await asyncio.wait([self._accepting, *self._handshakes])

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, peer = await loop.sock_accept(self._listening)
            except OSError:
                await asyncio.sleep(PAUSE_SECONDS)
                continue
            handshake = _Handshake(str(peer[0]))
            if not self._limiter.admit(handshake):
                accepted.close()
                continue
            task = loop.create_task(self._shake(handshake, accepted))
            handshake.task = task
            self._handshakes.add(task)
            task.add_done_callback(self._handshakes.discard)

    async def _shake(self, handshake: "_Handshake", accepted: socket.socket) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                self._make,
                accepted,
                ssl=self._context,
                ssl_handshake_timeout=self._limiter.bounds.head_seconds,
            )
        except (OSError, TimeoutError):
            CLOSED.labels("handshake").inc()
        finally:
            self._limiter.release(handshake)


class _Handshake:
    """A connection until it speaks TLS."""

    use = Use.HALF_OPEN

    def __init__(self, peer: str):
        self.peer = peer
        self.task: asyncio.Task[None] | None = None

    def check(self, now: float) -> str:
        """Returns no complaint: the handshake has a time limit of its own."""
        return ""

    def abort(self) -> None:
        """Closes at once."""
        if self.task is not None:
            self.task.cancel()
