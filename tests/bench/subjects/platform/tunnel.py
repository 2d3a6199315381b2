"""Connections through the tunnel beside direct ones: latency, bulk, logs, processor time."""

import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import aiohttp
import uvloop
from tests.bench.figures import Figure, Options, at_least, at_most, plain
from tests.bench.programs.null_engine import WHOLE
from tests.bench.tunnel_site import TunnelBench, running
from tests.support.services.tunnel_plane import request

from windlass.tunnel.byte_stream import ByteStream
from windlass_agent.tunnel.sockets import Socket

MIB = 2**20
LOGS = 1000
CHUNKED = 100
CHUNK = 4096
CHUNK_EVERY = 0.01
ASKING = 32
ASKED = (
    b"POST /v1/chat/completions HTTP/1.1\r\nhost: engine\r\ncontent-type: application/json\r\n"
    b"content-length: 77\r\n\r\n"
    b'{"model":"null","messages":[{"role":"user","content":"Hello, how are you?"}]}'
)
Stream = ByteStream | Socket


async def measure(options: Options) -> list[Figure]:
    """On the loop that servers run on, in a thread of its own."""
    return await asyncio.to_thread(lambda: uvloop.run(_measure(options)))


async def _measure(options: Options) -> list[Figure]:
    async with running() as bench:
        found = [*await _gets(bench, options), *await _bulk(bench, options)]
        found += await _chunks(bench, options)
        found += await _requests(bench, options)
        found += await _logs(bench, options)
        return found


async def _gets(bench: TunnelBench, options: Options) -> list[Figure]:
    """Small requests, one after the other: over a kept direct connection, and a tunnelled each."""
    count = 100 if options.quick else 500
    socket = await bench.direct()

    async def direct() -> float:
        began = time.perf_counter()
        await socket.write(request("/small"))
        await _whole(socket, 1024)
        return time.perf_counter() - began

    async def tunnelled() -> float:
        began = time.perf_counter()
        stream = await bench.tunnelled()
        await stream.write(request("/small"))
        await _whole(stream, 1024)
        took = time.perf_counter() - began
        # The answer is there; that the connection ends is no part of it.
        await stream.close()
        return took

    ours, theirs = [], []
    for _ in range(5):
        theirs.append(await _p50(direct, count // 5))
        ours.append(await _p50(tunnelled, count // 5))
    stalled = await bench.tunnelled()
    await stalled.write(request("/bulk?1000000000"))
    await stalled.read()
    beside = await _p50(tunnelled, count)
    stalled.abort()
    socket.close()
    mine, direct_ms = statistics.median(ours) * 1e3, statistics.median(theirs) * 1e3
    return [
        at_most("tunnel_get_added", mine - direct_ms, "ms", 2).beside("direct", direct_ms),
        plain("tunnel_get", mine, "ms").beside("direct", direct_ms),
        plain("tunnel_get_beside_stalled", beside * 1e3, "ms").beside("without", mine),
    ]


async def _bulk(bench: TunnelBench, options: Options) -> list[Figure]:
    """A large answer in turns: ours, to aiohttp as Python's Kubernetes clients read it, and to
    the bare socket that the agent's end reads it from."""
    size = (64 if options.quick else 512) * MIB
    ours, theirs, bare, cpu = [], [], [], []
    await _rate(bench.tunnelled, 16 * MIB)
    for _ in range(2 if options.quick else 5):
        theirs.append(await _aiohttp_rate(bench, size))
        bare.append(await _rate(bench.direct, size))
        spent = bench.spent()
        ours.append(await _rate(bench.tunnelled, size))
        cpu.append(_each(spent, bench.spent(), size / CHUNK))
    mine, direct = statistics.median(ours), statistics.median(theirs)
    ratios = [one / other for one, other in zip(ours, theirs, strict=True)]
    return [
        at_least("tunnel_bulk", mine, "MB/s", 250).beside("aiohttp, direct", direct),
        at_least("tunnel_bulk_to_direct", statistics.median(ratios) * 100, "%", 60),
        plain("tunnel_bulk_to_bare", mine / statistics.median(bare) * 100, "%"),
        plain("tunnel_bulk_cpu_agent", statistics.median(one for one, _ in cpu), "µs/4 KiB"),
        plain("tunnel_bulk_cpu_server", statistics.median(one for _, one in cpu), "µs/4 KiB"),
    ]


async def _aiohttp_rate(bench: TunnelBench, size: int) -> float:
    connector = aiohttp.TCPConnector(ssl=bench.tls)
    url = f"https://127.0.0.1:{bench.port}/bulk?{size}"
    async with aiohttp.ClientSession(connector=connector) as session:
        began = time.perf_counter()
        async with session.get(url) as answer:
            async for _ in answer.content.iter_any():
                pass
        return size / (time.perf_counter() - began) / 1e6


async def _chunks(bench: TunnelBench, options: Options) -> list[Figure]:
    """Processor time of chunks that cannot be joined: each alone on its stream. Beside it what
    it costs to read them from the API server itself."""
    seconds = 3.0 if options.quick else 10.0
    rate, agent, server = await _chunk_cost(bench, bench.tunnelled, seconds)
    _, _, read = await _chunk_cost(bench, bench.direct, seconds)
    return [
        plain("tunnel_chunks", rate, "1/s"),
        at_most("tunnel_chunk_cpu_agent", agent, "µs/4 KiB", 30).beside("direct reader", read),
        at_most("tunnel_chunk_cpu_server", server, "µs/4 KiB", 30).beside("direct reader", read),
    ]


async def _chunk_cost(
    bench: TunnelBench, opener: Callable[[], Awaitable[Stream]], seconds: float
) -> tuple[float, float, float]:
    """Chunks each second, and what each costs the agent and this process."""
    heard = _Heard()
    async with _following(opener, CHUNKED, CHUNK_EVERY, CHUNK, heard):
        await asyncio.sleep(1)
        spent, began = bench.spent(), heard.count
        await asyncio.sleep(seconds)
        count = heard.count - began
        return (count / seconds, *_each(spent, bench.spent(), count))


async def _requests(bench: TunnelBench, options: Options) -> list[Figure]:
    """Small JSON requests to an engine over kept connections, as gateways send them."""
    streams = [await bench.engine() for _ in range(ASKING)]
    seconds = 2.0 if options.quick else 10.0
    count = 0

    async def ask(stream: ByteStream, until: float) -> None:
        nonlocal count
        while time.perf_counter() < until:
            await stream.write(ASKED)
            left = len(WHOLE)
            while left > 0:
                left -= len(await stream.read())
            count += 1

    async def ask_all(streams: list[ByteStream], seconds: float) -> float:
        """Requests per second."""
        nonlocal count
        count, began = 0, time.perf_counter()
        await asyncio.gather(*(ask(stream, began + seconds) for stream in streams))
        return count / (time.perf_counter() - began)

    await ask_all(streams, 0.5)
    spent = bench.spent()
    rate = await ask_all(streams, seconds)
    agent, server = _each(spent, bench.spent(), count)
    alone = await ask_all(streams[:1], seconds / 5)
    for stream in streams:
        stream.abort()
    return [
        at_least("tunnel_requests_per_core", 1e6 / (agent + server), "1/s", 3000),
        plain("tunnel_requests", rate, "1/s"),
        plain("tunnel_request_cpu_agent", agent, "µs"),
        plain("tunnel_request_cpu_server", server, "µs"),
        plain("tunnel_request_alone", 1e3 / alone, "ms"),
    ]


async def _logs(bench: TunnelBench, options: Options) -> list[Figure]:
    """Lines of a thousand logs that are followed at once, one each second, and one that stalls."""
    seconds = 5.0 if options.quick else 20.0
    count = 200 if options.quick else LOGS
    found = []
    for name, opener in (("direct", bench.direct), ("tunnel", bench.tunnelled)):
        heard = _Heard()
        async with _following(opener, count, 1.0, 100, heard):
            await asyncio.sleep(3)
            stalled = await bench.tunnelled() if name == "tunnel" else None
            if stalled is not None:
                await stalled.write(request("/bulk?1000000000"))
            heard.delays.clear()
            await asyncio.sleep(seconds)
            if stalled is not None:
                stalled.abort()
        delays = sorted(heard.delays)
        found.append((delays[len(delays) // 2] * 1e3, delays[int(len(delays) * 0.99)] * 1e3))
    (direct_p50, direct_p99), (p50, p99) = found
    return [
        at_most("tunnel_log_delay_p99", p99, "ms", 20).beside("direct", direct_p99),
        plain("tunnel_log_delay_p50", p50, "ms").beside("direct", direct_p50),
    ]


def _each(before: tuple[float, ...], after: tuple[float, ...], count: float) -> tuple[float, float]:
    """Microseconds for each of `count`."""
    agent, server = ((now - then) / count * 1e6 for then, now in zip(before, after, strict=True))
    return agent, server


class _Heard:
    """Lines of logs and how late they were."""

    def __init__(self) -> None:
        self.count = 0
        self.delays: list[float] = []

    async def follow(self, stream: Stream) -> None:
        """Until cancelled."""
        while data := await stream.read():
            now = time.monotonic()
            for piece in data.split(b"<")[1:]:
                self.count += 1
                self.delays.append(now - float(piece[: piece.index(b">")]))


@asynccontextmanager
async def _following(
    opener: Callable[[], Awaitable[Stream]], count: int, every: float, size: int, heard: _Heard
) -> AsyncIterator[None]:
    room = asyncio.Semaphore(32)
    streams: list[Stream] = []

    async def one(number: int) -> None:
        async with room:
            stream = await opener()
            streams.append(stream)
            await stream.write(request(f"/log?{every},{size},{every * number / count}"))

    await asyncio.gather(*(one(number) for number in range(count)))
    tasks = [asyncio.create_task(heard.follow(stream)) for stream in streams]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for stream in streams:
            stream.abort()


async def _p50(work: Callable[[], Awaitable[float]], count: int) -> float:
    return statistics.median([await work() for _ in range(count)])


async def _rate(opener: Callable[[], Awaitable[Stream]], size: int) -> float:
    """MB/s of one answer of `size` bytes."""
    stream = await opener()
    await stream.write(request(f"/bulk?{size}"))
    began = time.perf_counter()
    await _whole(stream, size)
    took = time.perf_counter() - began
    stream.abort()
    return size / took / 1e6


async def _whole(stream: Stream, size: int) -> None:
    """Reads an answer whose body has `size` bytes."""
    data = await stream.read()
    while b"\r\n\r\n" not in data:
        data += await stream.read()
    left = size - len(data) + data.index(b"\r\n\r\n") + 4
    while left > 0:
        left -= len(await stream.read())
