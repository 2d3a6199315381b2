"""Idle connections to one server, kept for the next request."""

import time
from collections.abc import Awaitable, Callable

from windlass_agent.tunnel.sockets import Socket

MAX_IDLE = 16
# Below what API servers and their load balancers allow.
IDLE_SECONDS = 50.0


class TargetConnectionPool:
    """The one that was used last is taken first."""

    def __init__(self, connect: Callable[[], Awaitable[Socket]]):
        self._connect = connect
        self._idle: list[tuple[Socket, float]] = []

    async def take(self) -> tuple[Socket, bool]:
        """A connection, and whether it was used before; raises OSError."""
        self._drop(time.monotonic() - IDLE_SECONDS)
        if self._idle:
            return self._idle.pop()[0], True
        return await self._connect(), False

    async def fresh(self) -> Socket:
        """A new connection; raises OSError."""
        return await self._connect()

    def give(self, socket: Socket) -> None:
        """Keeps a connection whose exchange is whole."""
        self._idle.append((socket, time.monotonic()))
        if len(self._idle) > MAX_IDLE:
            self._idle.pop(0)[0].close()

    def close(self) -> None:
        """Closes them all."""
        self._drop(float("inf"))

    def _drop(self, before: float) -> None:
        kept = []
        for socket, since in self._idle:
            if since > before and socket.idle:
                kept.append((socket, since))
            else:
                socket.close()
        self._idle = kept
