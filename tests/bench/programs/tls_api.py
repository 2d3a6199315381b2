"""A TLS API server that computes nothing: PORT and the folder of its certificate as arguments.

`/small` answers 1 KiB, `/bulk?N` N bytes, `/log?EVERY,SIZE,FIRST` chunks of SIZE bytes every
EVERY seconds from FIRST seconds on, each beginning with the time at which it was written.
"""

import asyncio
import sys
import time
from pathlib import Path
from typing import Any

import uvloop

from windlass.sessions.listener.certificates import own_certificate, server_context

_SMALL = b"HTTP/1.1 200 OK\r\nContent-Length: 1024\r\n\r\n" + b"s" * 1024
_BULK = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n"
_LOG = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
_BLOCK = b"x" * (256 * 1024)


def stamped(size: int) -> bytes:
    """A line of `size` bytes that says when it was written; the clock is the machine's."""
    return (b"<%.7f>" % time.monotonic()).ljust(size - 1, b".") + b"\n"


class Api(asyncio.Protocol):
    """One connection."""

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._head = b""
        self._left = 0
        self._full = False

    def data_received(self, data: bytes) -> None:
        self._head += data
        while b"\r\n\r\n" in self._head:
            head, _, self._head = self._head.partition(b"\r\n\r\n")
            path, _, query = head.split(b" ", 2)[1].partition(b"?")
            if path == b"/bulk":
                self._left = int(query)
                self._transport.write(_BULK % self._left)
                self._pour()
            elif path == b"/log":
                every, size, first = map(float, query.split(b","))
                self._transport.write(_LOG)
                self._loop.call_later(
                    first, self._line, self._loop.time() + first, every, int(size)
                )
            else:
                self._transport.write(_SMALL)

    def pause_writing(self) -> None:
        self._full = True

    def resume_writing(self) -> None:
        self._full = False
        self._pour()

    def _pour(self) -> None:
        while self._left and not self._full and not self._transport.is_closing():
            piece = _BLOCK[: self._left]
            self._left -= len(piece)
            self._transport.write(piece)

    def _line(self, due: float, every: float, size: int) -> None:
        if self._transport.is_closing():
            return
        self._transport.write(b"%x\r\n%b\r\n" % (size, stamped(size)))
        self._loop.call_at(due + every, self._line, due + every, every, size)


async def serve(port: int, folder: Path) -> None:
    """Serves for ever."""
    certificate, key, _ = own_certificate(folder, {"127.0.0.1"})
    server = await asyncio.get_running_loop().create_server(
        Api, "127.0.0.1", port, ssl=server_context(certificate, key), backlog=2048
    )
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1]), Path(sys.argv[2])))
