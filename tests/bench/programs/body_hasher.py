"""A server that reads a body, hashes it and answers; a GET at once. PORT as argument."""

import asyncio
import hashlib
import sys
from typing import Any

import httptools
import uvloop

ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"


class Hasher(asyncio.Protocol):
    """One connection."""

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._parser = httptools.HttpRequestParser(self)
        self._body: list[bytes] = []

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        hashlib.sha256(b"".join(self._body)).digest()
        self._body = []
        self._transport.write(ANSWER)


async def main(port: int) -> None:
    """Serves until it is killed."""
    server = await asyncio.get_running_loop().create_server(Hasher, "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1])))
