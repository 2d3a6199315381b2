"""Load that costs little: connections that repeat one request, and calls at a steady rate."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import httptools


@dataclass
class Load:
    """Results of a load: the latency of each response, and the errors."""

    seconds: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    bytes: int = 0

    def percentile(self, share: float) -> float:
        """Seconds that this share of the answers stayed below."""
        return percentile(self.seconds, share)


async def paced(
    call: Callable[[], Coroutine[Any, Any, object]], *, count: int, rate: float
) -> None:
    """Begins calls at a steady rate a second, whatever each takes; returns when all have ended."""
    async with asyncio.TaskGroup() as group:
        began = time.perf_counter()
        for number in range(count):
            await asyncio.sleep(max(0.0, began + number / rate - time.perf_counter()))
            group.create_task(call())


def percentile(values: Sequence[float], share: float) -> float:
    """The value that this share of the values stays below."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def post(path: str, body: bytes, *, key: str, host: str = "127.0.0.1") -> bytes:
    """A whole request as bytes."""
    return (
        b"POST %b HTTP/1.1\r\nhost: %b\r\nauthorization: Bearer %b\r\n"
        b"content-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
    ) % (path.encode(), host.encode(), key.encode(), len(body), body)


class Connection(asyncio.Protocol):
    """Sends again as soon as an answer is whole, until the deadline."""

    def __init__(self, request: bytes, load: Load, deadline: float):
        self._request = request
        self._load = load
        self._deadline = deadline
        self._began = 0.0
        self._body = b""
        self.closed = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._send()

    def _send(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._began = time.perf_counter()
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_body(self, data: bytes) -> None:
        self._load.bytes += len(data)
        self._body = data

    def on_message_complete(self) -> None:
        now = time.perf_counter()
        status = self._parser.get_status_code()
        if status == 200:
            self._load.seconds.append(now - self._began)
        else:
            self._load.errors.append(f"{status}: {self._body[:300]!r}")
        if now < self._deadline and len(self._load.errors) < 10:
            self._send()
        else:
            self._transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        if error is not None:
            self._load.errors.append(repr(error))
        if not self.closed.done():
            self.closed.set_result(None)


async def repeat(
    port: int,
    request: bytes,
    *,
    connections: int,
    seconds: float,
    make: Callable[[bytes, Load, float], Connection] = Connection,
) -> Load:
    """Loads a server; every request that began is waited for. Raises when one fails."""
    load, loop = Load(), asyncio.get_running_loop()
    deadline = time.perf_counter() + seconds
    made = [
        await loop.create_connection(lambda: make(request, load, deadline), "127.0.0.1", port)
        for _ in range(connections)
    ]
    await asyncio.gather(*(protocol.closed for _, protocol in made))
    if load.errors:
        raise RuntimeError(f"the load failed: {load.errors[0]}")
    return load


async def steady(
    port: int, path: str, body: bytes, *, key: str, rate: float, seconds: float
) -> list[float]:
    """Posts at a steady rate on kept connections; answers the seconds of each.

    Raises RuntimeError when one is refused.
    """
    took: list[float] = []
    headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
    async with aiohttp.ClientSession(headers=headers) as session:

        async def call() -> None:
            began = time.perf_counter()
            async with session.post(f"http://127.0.0.1:{port}{path}", data=body) as answer:
                text = await answer.text()
                if answer.status != 200:
                    raise RuntimeError(f"the load failed: {answer.status} {text[:300]}")
            took.append(time.perf_counter() - began)

        await paced(call, count=int(rate * seconds), rate=rate)
    return took
