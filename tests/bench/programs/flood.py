"""A flood without a key, for ever: half-open heads and bodies that nobody asked for. PORT.

3,000 connections send half a head, and 80 send a body of 8 MiB in pieces; whatever the server
closes is opened anew after a quarter of a second. They come from 16 addresses of the loopback,
as a botnet's do, so that a bound per address alone is no answer.
"""

import asyncio
import contextlib
import itertools
import resource
import sys

import uvloop

HALF_OPEN, BODIES = 3000, 80
AGAIN_SECONDS = 0.25
PIECE, PIECE_SECONDS = b"x" * 16384, 0.05
_ADDRESSES = itertools.cycle(f"127.0.9.{number}" for number in range(1, 17))
_HALF = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-ty"
_HEAD = (
    b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
    b"content-length: 8388608\r\n\r\n"
)


async def half_open(port: int) -> None:
    """Begins a head, and waits until the server has had enough."""
    reader, writer = await _open(port)
    with contextlib.closing(writer):
        writer.write(_HALF)
        await reader.read()


async def body(port: int) -> None:
    """Sends a body without a key until the server closes."""
    reader, writer = await _open(port)
    with contextlib.closing(writer):
        writer.write(_HEAD)
        ended = asyncio.ensure_future(reader.read())
        while not ended.done() and not writer.is_closing():
            writer.write(PIECE)
            await writer.drain()
            await asyncio.sleep(PIECE_SECONDS)
        await ended


async def _open(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    address = (next(_ADDRESSES), 0)
    return await asyncio.open_connection("127.0.0.1", port, local_addr=address)


async def _again(port: int, kind: str) -> None:
    while True:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            await (half_open if kind == "half" else body)(port)
        await asyncio.sleep(AGAIN_SECONDS)


async def main(port: int) -> None:
    """Runs until it is ended."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 2**16), hard))
    async with asyncio.TaskGroup() as group:
        for _ in range(BODIES):
            group.create_task(_again(port, "body"))
        for number in range(HALF_OPEN):
            group.create_task(_again(port, "half"))
            if number % 100 == 99:
                await asyncio.sleep(0.02)


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1])))
