"""Connections to engines: pooled by address, chosen by conversation and load, with retries."""

import asyncio
import hashlib
import os
import random
import ssl
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from urllib.parse import quote, urlsplit

from windlass.core import telemetry
from windlass.gateway.errors import HttpError
from windlass.gateway.inference import tunnel
from windlass.gateway.inference.connection import EngineBroken, EngineConnection
from windlass.gateway.inference.routes import EngineEndpoint
from windlass.tunnel.byte_stream import ConnectStub

log = telemetry.logger("gateway.engines")
CONNECT_SECONDS = 2.0
# Engines close what rests for long; we do it before they do.
IDLE_SECONDS = 30.0
POOLS = 256
# Open requests by which the engine of a conversation may be ahead of the least busy one.
BUSIER = 4
# Spreads the bits of a product over its upper half (Fibonacci hashing).
_MIXER, _MASK = 0x9E3779B97F4A7C15, (1 << 64) - 1
ERROR_BYTES = 1 << 20
# It has unloaded the model since the last news of it, or has too much to do.
_TRY_ANOTHER = frozenset({HTTPStatus.NOT_FOUND, HTTPStatus.SERVICE_UNAVAILABLE})


class NoAnswer(HttpError):
    """No engine of a model accepted the request; a retry may succeed."""

    def __init__(self) -> None:
        super().__init__(
            503,
            "No engine of this model is responding; try again.",
            kind="service_unavailable_error",
            code="model_not_ready",
            param="model",
            headers={"retry-after": "1"},
        )


class EngineConnectionPool:
    """The connections to one address."""

    def __init__(self, address: str, tunnels: ConnectStub | None = None):
        self.address = address
        self._address = urlsplit(address)
        self._tunnels = tunnels
        self._loop = asyncio.get_running_loop()
        self._idle: list[EngineConnection] = []
        self._heads: dict[str, bytes] = {}
        self.active = 0
        # The same at every gateway.
        self.seed = int.from_bytes(hashlib.blake2b(address.encode(), digest_size=7).digest())

    async def send(self, path: str, body: bytes, request_id: str) -> EngineConnection:
        """Sends a request; returns the connection with the status read.

        Raises OSError or TimeoutError when it cannot connect, EngineBroken.
        """
        connection = self._rested() or await self._connect()
        head = self._heads.get(path) or self._head(path)
        ids = b"x-request-id: %b\r\ncontent-length: %d\r\n\r\n" % (request_id.encode(), len(body))
        try:
            await connection.exchange(b"".join((head, ids, body)))
        except BaseException:
            connection.rest()
            raise
        return connection

    def done(self, connection: EngineConnection) -> None:
        """Takes back a connection from `send`, and lowers `active`."""
        self.active -= 1
        connection.rest()
        if connection.reusable:
            connection.idle_since = self._loop.time()
            self._idle.append(connection)
        if self._idle and self._is_old(self._idle[0]):
            self._idle.pop(0).close()

    def close(self) -> None:
        """Closes idle connections."""
        while self._idle:
            self._idle.pop().close()

    def _rested(self) -> EngineConnection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.reusable and not self._is_old(connection):
                return connection
            connection.close()
        return None

    def _is_old(self, connection: EngineConnection) -> bool:
        return self._loop.time() - connection.idle_since > IDLE_SECONDS

    async def _connect(self) -> EngineConnection:
        where, loop = self._address, self._loop
        if where.scheme == "tunnel":
            if self._tunnels is None:
                raise ConnectionError("This gateway has no tunnel to the engine's cluster.")
            return await tunnel.connect(self._tunnels, where)
        async with asyncio.timeout(CONNECT_SECONDS):
            if where.scheme == "unix":
                with plain_socket("/" + where.path.lstrip("/")) as path:
                    return (
                        await loop.create_unix_connection(lambda: EngineConnection(loop), path)
                    )[1]
            secure = ssl.create_default_context() if where.scheme == "https" else None
            port = where.port or (443 if secure else 80)
            made = await loop.create_connection(
                lambda: EngineConnection(loop), where.hostname or "", port, ssl=secure
            )
            return made[1]

    def _head(self, path: str) -> bytes:
        where = self._address
        is_http = where.scheme in ("http", "https")
        host = where.netloc.rpartition("@")[2] if is_http else "engine"
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


class Engines:
    """Opens exchanges with engines."""

    def __init__(self, tunnels: ConnectStub | None = None) -> None:
        self._pools: dict[str, EngineConnectionPool] = {}
        self._tunnels = tunnels

    async def open(
        self,
        endpoints: Sequence[EngineEndpoint],
        path: str,
        body: bytes,
        request_id: str,
        *,
        conversation: int = 0,
    ) -> tuple[EngineConnection, EngineConnectionPool]:
        """Sends a request; returns with its status and headers read.

        Requests of one conversation go to one engine, unless it is busier than others by a
        margin; those of none, 0, to the engine that is least busy. The caller gives the
        connection back by the pool's `done`. Raises NoAnswer when no engine takes it.
        """
        tried: set[str] = set()
        for attempt in range(3):
            pool, address = self._pick(endpoints, tried, conversation)
            pool.active += 1
            try:
                connection = await pool.send(path, body, request_id)
            except (OSError, EngineBroken) as error:
                pool.active -= 1
                # A pooled connection may have been closed just now: the same engine is
                # worth one more try, but one that refuses connections is not.
                if attempt or isinstance(error, OSError):
                    tried.add(address)
                log.warning("engine_unreachable", engine=address, error=repr(error))
                if isinstance(error, TimeoutError) or tried >= {e.address for e in endpoints}:
                    break
                continue
            except BaseException:
                pool.active -= 1
                raise
            if connection.status not in _TRY_ANOTHER or attempt == 2:
                return connection, pool
            tried.add(address)
            left = {endpoint.address for endpoint in endpoints} - tried
            if not left and connection.status == HTTPStatus.SERVICE_UNAVAILABLE:
                return connection, pool
            connection.close()
            pool.done(connection)
            if not left:
                break
        raise NoAnswer

    def _pick(
        self, endpoints: Sequence[EngineEndpoint], tried: set[str], conversation: int
    ) -> tuple[EngineConnectionPool, str]:
        if len(endpoints) == 1 and not tried:
            address = endpoints[0].address
            return self._pool(address), address
        start = random.randrange(len(endpoints))  # noqa: S311
        best = kept = None
        heaviest = -1
        # One pass, since it is made for each request and replicas may be many.
        for endpoint in (*endpoints[start:], *endpoints[:start]):
            address = endpoint.address
            if address in tried:
                continue
            pool = self._pools.get(address) or self._pool(address)
            if best is None or pool.active < best.active:
                best = pool
            if conversation:
                # Rendezvous: an engine that comes or goes moves its own conversations alone.
                weight = (conversation ^ pool.seed) * _MIXER & _MASK
                if weight > heaviest:
                    heaviest, kept = weight, pool
        if best is None:
            raise AssertionError("a caller stops when every endpoint was tried")
        chosen = kept if kept is not None and kept.active <= best.active + BUSIER else best
        return chosen, chosen.address

    def _pool(self, address: str) -> EngineConnectionPool:
        found = self._pools.get(address)
        if found is None:
            found = self._pools[address] = EngineConnectionPool(address, self._tunnels)
            self._drop_idle()
        return found

    def _drop_idle(self) -> None:
        """Engines come and go under new addresses: forgets the oldest that do nothing."""
        for address in list(self._pools)[: max(0, len(self._pools) - POOLS)]:
            if not self._pools[address].active:
                self._pools.pop(address).close()

    async def close(self) -> None:
        """Closes every connection."""
        for pool in self._pools.values():
            pool.close()
