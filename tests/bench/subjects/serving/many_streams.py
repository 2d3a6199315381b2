"""1,000 streams at once on two cores: the time between the chunks of each.

A chunk of each stream every 40 ms, 25,000 a second in all, so that the gateway and all else may add
10 ms to a gap of 50. The gateway has one core; the engine, which computes nothing, the client, the
services and Postgres share the other. They begin within three seconds; what is measured is the time
after that, with all of them open. The floor is the same client at the engine itself.
"""

import asyncio
import json

import uvloop
from tests.bench import machine
from tests.bench.figures import Figure, Options, at_most, plain
from tests.bench.load import post
from tests.bench.plant import NO_AGENT, Plant, script, split_gateway
from tests.bench.streams import Pace, stream
from tests.bench.stub_agent import joined, running_at
from tests.bench.subjects.serving.chat import LIMITS, PATH
from tests.support.processes.windlass import free_port

from windlass.gateway.listener.bounds import raise_file_limit

STREAMS, GROUPS, PAUSE_MS = 1000, 20, 40
RAMP_SECONDS, SETTLE_SECONDS, MEASURED_SECONDS = 3.0, 1.0, 10.0
# All of them come from one address.
SETTINGS = {**NO_AGENT, "limits": LIMITS, "http": {"max_connections_per_address": 2 * STREAMS}}


async def measure(options: Options) -> list[Figure]:
    """See the module; the client is on the loop that servers run on, in a thread of its own."""
    return await asyncio.to_thread(lambda: uvloop.run(_measure(options)))


async def _measure(options: Options) -> list[Figure]:
    streams = STREAMS // 20 if options.quick else STREAMS
    seconds = 2.0 if options.quick else MEASURED_SECONDS
    ours, floor = Pace(counting=False), Pace(counting=False)
    raise_file_limit()
    port = free_port()
    with machine.apart() as (core, _), script("null_engine", str(port), str(PAUSE_MS)):
        async with split_gateway(SETTINGS) as plant:
            machine.pin(plant.pid("gateway"), core)
            model = plant.import_model()
            async with joined(plant, running_at(f"http://127.0.0.1:{port}")):
                await asyncio.to_thread(plant.serve, model, engine="vllm")
                lasting = RAMP_SECONDS + 2 * SETTLE_SECONDS + seconds
                request = _request(plant, model, int(lasting * 1000 / PAUSE_MS))
                for to, pace in ((port, floor), (plant.windlass.port, ours)):
                    await _open_all(to, request, streams, seconds, pace)
    direct = "engine alone"
    p99, p50 = (ours.gap_ms(share) for share in (0.99, 0.5))
    return [
        at_most("many_streams_gap_p99", p99, "ms", 50).beside(direct, floor.gap_ms(0.99)),
        plain("many_streams_gap_p50", p50, "ms").beside(direct, floor.gap_ms(0.5)),
        plain("many_streams_ttft_p99", ours.first_ms(0.99), "ms").beside(
            direct, floor.first_ms(0.99)
        ),
    ]


async def _open_all(port: int, request: bytes, streams: int, seconds: float, pace: Pace) -> None:
    """Opens streams in groups, and counts their gaps while all are open."""
    each = streams // GROUPS
    async with asyncio.TaskGroup() as group:
        for _ in range(GROUPS):
            group.create_task(stream(port, request, connections=each, seconds=0, into=pace))
            await asyncio.sleep(RAMP_SECONDS / GROUPS)
        await asyncio.sleep(SETTLE_SECONDS)
        pace.counting = True
        await asyncio.sleep(seconds)
        pace.counting = False


def _request(plant: Plant, model: str, chunks: int) -> bytes:
    messages = [{"role": "user", "content": "Hello, how are you today?"}]
    body = {"model": model, "messages": messages, "max_completion_tokens": chunks, "stream": True}
    return post(PATH, json.dumps(body).encode(), key=plant.windlass.owner_key)
