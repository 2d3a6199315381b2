"""The part of a Kubernetes API server that a listener's tests need, over TLS, in raw bytes.

A fake, since a test must see each byte that arrives and say each byte that is answered.
What real clients do with a real server is tested in tests/cluster.
"""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from windlass.client.transport.websocket import BINARY, CLOSE, accept_of
from windlass.sessions.listener.certificates import own_certificate, server_context
from windlass.tunnel.http1 import RequestHead, first, parse_request

SUCCESS = {"status": "Success"}


@dataclass
class ApiServer:
    """A running server, and the requests that it received."""

    port: int = 0
    ca: Path = Path()
    # Every request: the head's raw bytes, the head, the body.
    heard: list[tuple[bytes, RequestHead, bytes]] = field(default_factory=list)
    # Lines to send to whoever follows a log or a watch.
    lines: asyncio.Queue[bytes] = field(default_factory=asyncio.Queue)
    # Requests that are being answered now.
    open: int = 0
    # What exec was sent after its upgrade.
    typed: bytearray = field(default_factory=bytearray)

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    def tls(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.ca))

    @property
    def targets(self) -> list[str]:
        return [f"{head.method} {head.target}" for _, head, _ in self.heard]

    def header(self, name: str) -> str:
        """Returns a header of the last request."""
        return first(self.heard[-1][1].headers, name)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            while await self._request(reader, writer):
                pass
        writer.close()

    async def _request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        raw = await reader.readuntil(b"\r\n\r\n")
        head = parse_request(raw)
        body = await reader.readexactly(head.length)
        self.heard.append((raw, head, body))
        self.open += 1
        try:
            return await self._answer(head, reader, writer)
        finally:
            self.open -= 1

    async def _answer(
        self, head: RequestHead, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        path, _, query = head.target.partition("?")
        if head.upgrade == "websocket":
            await self._websocket(head, query, reader, writer)
            return False
        if head.upgrade:
            writer.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: SPDY/3.1\r\n")
            writer.write(b"Connection: Upgrade\r\n\r\n")
            while data := await reader.read(65536):
                self.typed += data
                writer.write(data)
                await writer.drain()
            return False
        if "follow=true" in query or "watch=" in query:
            await self._stream(reader, writer)
            return False
        if path.endswith("/pods/big/log"):
            await self._bulk(writer)
            return True
        if path.endswith("/pods/hangs"):
            await reader.read()
            return False
        if path.endswith("/pods/odd"):
            writer.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n")
            return False
        document = {"kind": "PodList", "path": path}
        content = json.dumps(document).encode()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nAudit-Id: a1\r\n")
        writer.write(b"Content-Length: %d\r\n\r\n" % len(content))
        if head.method != "HEAD":
            writer.write(content)
        await writer.drain()
        return True

    async def _stream(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Sends chunks, one for each line, until b"" or until the client leaves."""
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        gone = asyncio.ensure_future(reader.read())
        try:
            while True:
                coming = asyncio.ensure_future(self.lines.get())
                await asyncio.wait({gone, coming}, return_when=asyncio.FIRST_COMPLETED)
                if not coming.done():
                    coming.cancel()
                    return
                line = coming.result()
                writer.write(b"%x\r\n%b\r\n" % (len(line), line))
                await writer.drain()
                if not line:
                    return
        finally:
            gone.cancel()

    async def _bulk(self, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for number in range(64):
            piece = bytes([number]) * 65536
            writer.write(b"10000\r\n%b\r\n" % piece)
            await writer.drain()
        writer.write(b"0\r\n\r\n")

    async def _websocket(
        self,
        head: RequestHead,
        query: str,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        """Exec: `cat` says what it is told, `exit` ends with 7, `wait` does nothing."""
        if "command=refuse" in query:
            content = json.dumps({"kind": "Status", "message": "no such container"}).encode()
            writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: %d\r\n\r\n" % len(content))
            writer.write(content)
            return
        key = first(head.headers, "sec-websocket-key")
        protocol = first(head.headers, "sec-websocket-protocol").split(",")[0]
        lines = [
            "HTTP/1.1 101 Switching Protocols",
            "Upgrade: websocket",
            "Connection: Upgrade",
            f"Sec-WebSocket-Accept: {accept_of(key)}",
            f"Sec-WebSocket-Protocol: {protocol}",
        ]
        # The first message comes with the head, as it may.
        writer.write("\r\n".join([*lines, "", ""]).encode() + server_frame(b"\x01ready\n"))
        status: Mapping[str, object] = SUCCESS
        if "command=exit" in query:
            causes = [{"reason": "ExitCode", "message": "7"}]
            status = {"status": "Failure", "reason": "NonZeroExitCode"}
            status["details"] = {"causes": causes}
        else:
            await self._echo(reader, writer, silent="command=wait" in query)
        writer.write(server_frame(b"\x03" + json.dumps(status).encode()))
        writer.write(server_frame(b"\x03\xe8", opcode=CLOSE))
        await writer.drain()

    async def _echo(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, silent: bool
    ) -> None:
        while True:
            first_byte, second = await reader.readexactly(2)
            size = second & 0x7F
            if size >= 126:
                size = int.from_bytes(await reader.readexactly(2 if size == 126 else 8), "big")
            mask = await reader.readexactly(4)
            masked = await reader.readexactly(size)
            payload = bytes(byte ^ mask[i % 4] for i, byte in enumerate(masked))
            self.typed += payload
            if first_byte & 0x0F == CLOSE or payload == b"\xff\x00":
                return
            if first_byte & 0x0F == BINARY and payload[:1] == b"\x00" and not silent:
                writer.write(server_frame(b"\x01" + payload[1:]))
                await writer.drain()


def server_frame(payload: bytes, opcode: int = BINARY) -> bytes:
    """Returns a short unmasked message of a server."""
    size = len(payload)
    length = bytes([size]) if size < 126 else bytes([126]) + size.to_bytes(2, "big")
    return bytes([0x80 | opcode]) + length + payload


@asynccontextmanager
async def running_api_server(folder: Path) -> AsyncIterator[ApiServer]:
    """Serves until the end of the block."""
    certificate, key, ca = own_certificate(folder, {"127.0.0.1"})
    api = ApiServer(ca=ca)
    server = await asyncio.start_server(
        api.serve, "127.0.0.1", 0, ssl=server_context(certificate, key)
    )
    api.port = server.sockets[0].getsockname()[1]
    try:
        yield api
    finally:
        server.close()
