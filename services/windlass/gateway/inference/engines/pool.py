"""Connections to the address of one engine, kept while they rest."""

import asyncio
import hashlib
import math
import os
import ssl
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from urllib.parse import quote, urlsplit

from windlass.core import telemetry
from windlass.gateway.inference.engines import tunnel
from windlass.gateway.inference.engines.connection import EngineConnection
from windlass.gateway.inference.engines.direct import DirectWays
from windlass.gateway.inference.routes import DirectAddress
from windlass.metrics.gateway import ENGINE_CONNECTIONS
from windlass.tunnel.lanes import Lanes
from windlass.tunnel.loss import detect_loss

log = telemetry.logger("gateway.engines")

CONNECT_SECONDS = 2.0
# A door that did not open is tried again after so long.
SHUT_SECONDS = 30.0
# Engines close what rests for long; we do it before they do.
IDLE_SECONDS = 30.0
# Distances: of a way that is more expensive for each byte than the one before it, and one more for
# each time that it takes twice as long to connect, from this time on.
_DIRECT, _TUNNEL, _RELAYED = range(3)
# Of connections, for operators.
_KINDS = {_TUNNEL: "tunnel", _RELAYED: "relayed"}
NEAR_SECONDS = 0.008
# More than any.
FARTHEST = 32
# How much a connection counts that took longer than those before: it may have waited here.
_SLOWER = 1 / 8


class EngineConnectionPool:
    """The connections to one address."""

    def __init__(
        self, address: str, tunnels: Lanes | None = None, directly: DirectWays | None = None
    ):
        self.address = address
        self._address = urlsplit(address)
        self._tunnels = tunnels
        self._directly = directly
        # The door that leads there past the tunnel; and one that did not open, until when.
        self.direct: DirectAddress | None = None
        self._shut: tuple[DirectAddress | None, float] = (None, 0.0)
        self._loop = asyncio.get_running_loop()
        self._idle: list[EngineConnection] = []
        self._heads: dict[str, bytes] = {}
        # Requests that have a place at the engine.
        self.active = 0
        # Its cache has no room for what was known from earlier requests.
        self.full = False
        self._way = _TUNNEL if self._address.scheme == "tunnel" else _DIRECT
        self._others, self._distance = 0, self._way
        # Both in one number, in steps, which costs a choice among many the least.
        self.behind = self._way
        self._connect_seconds = math.inf
        # The same at every gateway.
        self.seed = int.from_bytes(hashlib.blake2b(address.encode(), digest_size=7).digest())

    @property
    def others(self) -> int:
        """Requests of others there, as far as this gateway makes up for them; see OtherWork."""
        return self._others

    @others.setter
    def others(self, requests: int) -> None:
        self._others = requests
        self.behind = requests * FARTHEST + self._distance

    @property
    def distance(self) -> int:
        """The way there in steps, so that engines about as far as each other share requests."""
        return self._distance

    @distance.setter
    def distance(self, steps: int) -> None:
        self._distance = steps
        self.behind = self._others * FARTHEST + steps

    async def send(
        self,
        path: str,
        body: bytes,
        request_id: str,
        lines: bytes = b"",
        asked: Callable[[], None] = lambda: None,
        *,
        fresh: bool = False,
    ) -> EngineConnection:
        """Sends a request; returns the connection with the status read.

        Calls `asked` once it is connected. Uses no connection that has rested if it shall be
        `fresh`. Raises OSError or TimeoutError when it cannot connect, EngineBroken.
        """
        connection = (None if fresh else self._rested()) or await self._connect()
        head = self._heads.get(path) or self._head(path)
        ids = b"x-request-id: %b\r\ncontent-length: %d\r\n\r\n" % (request_id.encode(), len(body))
        asked()
        try:
            await connection.exchange(b"".join((head, lines, ids, body)))
        except BaseException:
            connection.rest()
            raise
        return connection

    async def reachable(self) -> bool:
        """Returns True if a connection can be made."""
        try:
            (await self._connect()).close()
        except OSError:
            return False
        return True

    def done(self, connection: EngineConnection) -> None:
        """Takes back a connection from `send`."""
        connection.rest()
        if connection.reusable:
            connection.idle_since = self._loop.time()
            self._idle.append(connection)
        if self._idle and self._is_old(self._idle[0]):
            self._idle.pop(0).close()

    @property
    def has_idle(self) -> bool:
        """True while a connection rests."""
        return bool(self._idle)

    def close(self) -> None:
        """Closes idle connections."""
        while self._idle:
            self._idle.pop().close()

    def _rested(self) -> EngineConnection | None:
        while self._idle:
            connection = self._idle.pop()
            # A door that is the engine's no longer is left at once.
            is_ours = connection.door is None or connection.door == self.direct
            if is_ours and connection.reusable and not self._is_old(connection):
                return connection
            connection.close()
        return None

    def _is_old(self, connection: EngineConnection) -> bool:
        return self._loop.time() - connection.idle_since > IDLE_SECONDS

    async def _connect(self) -> EngineConnection:
        began = self._loop.time()
        if (connection := await self._past_tunnel()) is None:
            # A door that did not open says nothing of how far it is by the tunnel.
            began = self._loop.time()
            connection = await self._open()
        self._measure(self._loop.time() - began)
        ENGINE_CONNECTIONS.labels(_KINDS.get(self._way, self._kind)).inc()
        return connection

    @property
    def _kind(self) -> str:
        """The kind of a connection past any tunnel."""
        return {"tunnel": "direct", "unix": "local"}.get(self._address.scheme, "address")

    def _measure(self, seconds: float) -> None:
        known = self._connect_seconds
        self._connect_seconds = seconds if seconds < known else known + _SLOWER * (seconds - known)
        self.distance = self._way + int(self._connect_seconds / NEAR_SECONDS).bit_length()

    async def _open(self) -> EngineConnection:
        where, loop = self._address, self._loop
        if where.scheme == "tunnel":
            if self._tunnels is None:
                raise ConnectionError("This gateway has no tunnel to the engine's cluster.")
            connection, is_relayed = await tunnel.connect(self._tunnels, where)
            self._way = _RELAYED if is_relayed else _TUNNEL
            return connection
        async with asyncio.timeout(CONNECT_SECONDS):
            if where.scheme == "unix":
                with plain_socket("/" + where.path.lstrip("/")) as path:
                    return (
                        await loop.create_unix_connection(lambda: EngineConnection(loop), path)
                    )[1]
            secure = ssl.create_default_context() if where.scheme == "https" else None
            port = where.port or (443 if secure else 80)
            transport, connection = await loop.create_connection(
                lambda: EngineConnection(loop), where.hostname or "", port, ssl=secure
            )
            detect_loss(transport.get_extra_info("socket"))
            return connection

    async def _past_tunnel(self) -> EngineConnection | None:
        """A connection through the door, if there is one that opens."""
        loop, door = self._loop, self.direct
        if self._directly is None or door is None:
            return None
        if self._shut[0] == door and loop.time() < self._shut[1]:
            return None
        try:
            connection = await self._directly.connect(
                door, self._engine_id, lambda: EngineConnection(loop)
            )
        except OSError as error:
            log.warning("engine_not_reached_directly", engine=self.address, error=repr(error))
            self._shut = (door, loop.time() + SHUT_SECONDS)
            return None
        self._way = _DIRECT
        connection.door = door
        return connection

    @property
    def _engine_id(self) -> str:
        return self._address.path.lstrip("/")

    def _head(self, path: str) -> bytes:
        where = self._address
        is_http = where.scheme in ("http", "https")
        # A machine's door finds the engine by it; to the engine itself it means nothing.
        other = self._engine_id if where.scheme == "tunnel" else "engine"
        host = where.netloc.rpartition("@")[2] if is_http else other
        target = quote((where.path.rstrip("/") if is_http else "") + path)
        head = (
            f"POST {target} HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\n"
        ).encode()
        self._heads[path] = head
        return head


@contextmanager
def plain_socket(path: str) -> Iterator[str]:
    """A path of the very socket that lies at `path` and is no link; raises OSError.

    A link in its place could lead the server to talk to anything.
    """
    if not hasattr(os, "O_PATH"):
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            raise ConnectionError(f"{path} is not a socket")
        yield path
        return
    descriptor = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            raise ConnectionError(f"{path} is not a socket")
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)
