"""A client without rules: it sends any bytes at any time."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from tests.support.waiting import PATIENCE


@dataclass
class Raw:
    """A connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def all(self, seconds: float = PATIENCE) -> bytes:
        """Returns everything up to the end of the connection; a reset is an end."""
        found = b""
        async with asyncio.timeout(seconds):
            with contextlib.suppress(ConnectionError):
                while piece := await self.reader.read(65536):
                    found += piece
        return found

    async def status(self, seconds: float = PATIENCE) -> int:
        """Returns the status of the next response."""
        async with asyncio.timeout(seconds):
            line = await self.reader.readline()
        return int(line.split()[1]) if line else 0

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()


@contextlib.asynccontextmanager
async def raw(port: int, *, receive_buffer: int = 0, **options: Any) -> AsyncIterator[Raw]:
    """Opens a connection until the end of the block."""
    made = socket.socket()
    if receive_buffer:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    made.setblocking(False)
    await asyncio.get_running_loop().sock_connect(made, ("127.0.0.1", port))
    connection = Raw(*await asyncio.open_connection(sock=made, **options))
    try:
        yield connection
    finally:
        await connection.close()
