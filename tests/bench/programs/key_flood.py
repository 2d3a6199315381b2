"""Requests with keys that nobody has, at a steady rate, for ever. PORT RATE [misspelt].

From 16 addresses of the loopback, as a botnet's. Every other key is of the right form, so that it
has to be looked up; the rest fail by their form, or all of them. Answers are read, not looked at.
"""

import asyncio
import contextlib
import itertools
import sys

import uvloop

from windlass.core.rpc.auth import new_secret

ADDRESSES = [f"127.0.8.{number}" for number in range(1, 17)]
# Drawn once: to make them takes longer than to send them.
KEYS = 20_000
TURN_SECONDS = 0.01


def _requests(*, misspelt: bool) -> list[bytes]:
    formed = (new_secret("wl-") for _ in range(KEYS))
    keys = (
        _misspelt(key) if misspelt or number % 2 == 0 else key for number, key in enumerate(formed)
    )
    return [
        b"GET /v1/models HTTP/1.1\r\nhost: x\r\nauthorization: Bearer %b\r\n\r\n" % key.encode()
        for key in keys
    ]


def _misspelt(key: str) -> str:
    return key[:-1] + ("b" if key[-1] == "a" else "a")


async def _send(port: int, address: str, rate: float, requests: "itertools.cycle[bytes]") -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))
    reading = asyncio.ensure_future(_drop(reader))
    owed, last = 0.0, asyncio.get_running_loop().time()
    with contextlib.closing(writer):
        while not reading.done():
            now = asyncio.get_running_loop().time()
            owed, last = min(owed + rate * (now - last), rate), now
            writer.writelines(itertools.islice(requests, int(owed)))
            owed -= int(owed)
            await writer.drain()
            await asyncio.sleep(TURN_SECONDS)


async def _drop(reader: asyncio.StreamReader) -> None:
    while await reader.read(2**16):
        pass


async def _again(port: int, address: str, rate: float, requests: "itertools.cycle[bytes]") -> None:
    while True:
        with contextlib.suppress(OSError):
            await _send(port, address, rate, requests)
        await asyncio.sleep(TURN_SECONDS)


async def main(port: int, rate: float, *, misspelt: bool) -> None:
    """Runs until it is ended."""
    requests = itertools.cycle(_requests(misspelt=misspelt))
    async with asyncio.TaskGroup() as group:
        for address in ADDRESSES:
            group.create_task(_again(port, address, rate / len(ADDRESSES), requests))


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1]), float(sys.argv[2]), misspelt="misspelt" in sys.argv[3:]))
