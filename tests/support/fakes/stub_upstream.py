"""A stand-in for a Kubernetes API server over TLS, with every way to answer or to fail.

It stands behind the agent's end of a tunnel, whose bytes it sees as they arrive. What a real
API server makes of the requests is tested in tests/cluster.
"""

import asyncio
import hashlib
import json
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from windlass.sessions.listener.certificates import own_certificate, server_context

BLOCK = b"x" * 65536
ESTABLISHED = 1
Reader = asyncio.StreamReader
Writer = asyncio.StreamWriter
Query = dict[str, str]


@dataclass
class Asked:
    """A request as it arrived."""

    method: str
    target: str
    headers: list[tuple[str, str]]

    def values(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key.lower() == name]


@dataclass
class StubUpstream:
    """A running stub."""

    port: int = 0
    # None where it speaks plain HTTP.
    ca: Path | None = None
    asked: list[Asked] = field(default_factory=list)
    # Connections that are open, and how many there ever were.
    writers: set[Writer] = field(default_factory=set)
    ever: int = 0
    # Those that follow `/log`.
    followers: set[Writer] = field(default_factory=set)

    @property
    def url(self) -> str:
        return f"{'https' if self.ca else 'http'}://127.0.0.1:{self.port}"

    @property
    def open(self) -> int:
        return len(self.writers)

    @property
    def targets(self) -> list[str]:
        return [asked.target for asked in self.asked]

    def tls(self) -> ssl.SSLContext | None:
        return ssl.create_default_context(cafile=str(self.ca)) if self.ca else None

    def say(self, data: bytes) -> None:
        """Sends to every follower of the log."""
        for writer in tuple(self.followers):
            writer.write(b"%x\r\n%b\r\n" % (len(data), data))

    def drop_idle(self) -> None:
        """Closes every connection, as a server does with idle ones."""
        for writer in tuple(self.writers):
            writer.close()

    async def serve(self, reader: Reader, writer: Writer) -> None:
        self.ever += 1
        self.writers.add(writer)
        try:
            while await self._exchange(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
            pass
        finally:
            self.writers.discard(writer)
            self.followers.discard(writer)
            writer.close()

    async def _exchange(self, reader: Reader, writer: Writer) -> bool:
        head = await reader.readuntil(b"\r\n\r\n")
        line, *lines = head.decode().strip().split("\r\n")
        method, target, _ = line.split(" ")
        headers = [(key, value.strip()) for key, _, value in (one.partition(":") for one in lines)]
        asked = Asked(method, target, headers)
        self.asked.append(asked)
        url = urlsplit(target)
        handler = getattr(self, "_" + url.path.strip("/"), None)
        if handler is not None:
            query = {key: values[0] for key, values in parse_qs(url.query).items()}
            return bool(await handler(reader, writer, query))
        length = int((asked.values("content-length") or ["0"])[0])
        body = await reader.readexactly(length)
        answer = json.dumps({"method": method, "body": hashlib.sha256(body).hexdigest()}).encode()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(answer), answer))
        return True

    async def _list(self, reader: Reader, writer: Writer, query: Query) -> bool:
        """Sends many bytes, in chunks or with a content length."""
        left, chunked = int(query["bytes"]), "chunked" in query
        length = b"Transfer-Encoding: chunked" if chunked else b"Content-Length: %d" % left
        writer.write(b"HTTP/1.1 200 OK\r\n%b\r\n\r\n" % length)
        while left:
            piece = BLOCK[: min(left, len(BLOCK))]
            left -= len(piece)
            writer.write(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
            await writer.drain()
        if chunked:
            writer.write(b"0\r\n\r\n")
        return True

    async def _log(self, reader: Reader, writer: Writer, query: Query) -> bool:
        """Sends what `say` gets, until the client leaves."""
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        self.followers.add(writer)
        await reader.read()
        return False

    async def _exec(self, reader: Reader, writer: Writer, query: Query) -> bool:
        """Switches protocols, greets, and echoes until the client ends or sends `bye`."""
        writer.write(_SWITCHING + b"hello")
        data = b""
        while data != b"bye" and (data := await reader.read(65536)):
            writer.write(data)
            await writer.drain()
        return False

    async def _deaf(self, reader: Reader, writer: Writer, query: Query) -> bool:
        """Switches protocols and never reads."""
        writer.write(_SWITCHING)
        socket_ = writer.get_extra_info("socket")
        assert isinstance(writer.transport, asyncio.Transport)
        writer.transport.pause_reading()
        # A socket that is not read does not tell of its end.
        while socket_.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == ESTABLISHED:
            await asyncio.sleep(0.02)
        writer.transport.abort()
        return False

    async def _refuse(self, reader: Reader, writer: Writer, query: Query) -> bool:
        """Refuses at once, without reading what follows."""
        writer.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno")
        await writer.drain()
        # As Go's server does: the reset that unread bytes bring may overtake the answer.
        await asyncio.sleep(0.5)
        return False

    async def _close(self, reader: Reader, writer: Writer, query: Query) -> bool:
        """Closes without a response."""
        return False

    async def _cut(self, reader: Reader, writer: Writer, query: Query) -> bool:
        """Closes in the middle of its response."""
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nonly this")
        return False


_SWITCHING = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n"


@asynccontextmanager
async def running_upstream(folder: Path | None) -> AsyncIterator[StubUpstream]:
    """Serves until the end of the block; over TLS unless there is no folder for its keys."""
    upstream, tls = StubUpstream(), None
    if folder is not None:
        certificate, key, upstream.ca = own_certificate(folder, {"127.0.0.1"})
        tls = server_context(certificate, key)
    server = await asyncio.start_server(upstream.serve, "127.0.0.1", 0, ssl=tls, limit=2**20)
    upstream.port = server.sockets[0].getsockname()[1]
    try:
        yield upstream
    finally:
        server.close()
        for writer in tuple(upstream.writers):
            writer.transport.abort()
