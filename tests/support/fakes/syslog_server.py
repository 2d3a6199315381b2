"""A syslog server that reads octet-counted messages, as RFC 6587 has them, and keeps them."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field


@dataclass
class SyslogServer:
    """Whole messages, in the order of their arrival."""

    url: str = ""
    messages: list[bytes] = field(default_factory=list)
    # Breaks the next connections off instead of reading them.
    breaks: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.breaks:
            self.breaks -= 1
            writer.transport.abort()
            return
        while head := await _until_space(reader):
            self.messages.append(await reader.readexactly(int(head)))
        writer.close()


async def _until_space(reader: asyncio.StreamReader) -> bytes:
    try:
        return (await reader.readuntil(b" "))[:-1]
    except asyncio.IncompleteReadError as error:
        if error.partial:
            raise
        return b""


@asynccontextmanager
async def listening(tls: ssl.SSLContext | None = None) -> AsyncIterator[SyslogServer]:
    """Listens on loopback until the end of the block."""
    made = SyslogServer()
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0, ssl=tls)
    async with server:
        port = server.sockets[0].getsockname()[1]
        made.url = f"{'tls' if tls else 'tcp'}://127.0.0.1:{port}"
        yield made
