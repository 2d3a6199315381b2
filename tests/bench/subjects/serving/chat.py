"""Chat through the gateway to an engine that computes nothing.

The gateway runs alone on one core, with the key, the limits and the usage on; users, rbac,
inference, usage and Postgres, the engine and the load share the others. Its cost is the
processor time that the kernel counts for its process, by requests or chunks. Then the same for an
engine of kind `vllm`, whose requests are checked, salted and given a priority. Beside them, one
after the other on the same core: a bare proxy on aiohttp, and LiteLLM's.
"""

import asyncio
import json
import statistics
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from tests.bench import litellm_env, machine
from tests.bench.figures import Figure, Options, at_least, at_most, plain
from tests.bench.load import post, repeat
from tests.bench.plant import NO_AGENT, Plant, script, split_gateway
from tests.bench.programs import null_engine
from tests.bench.stub_agent import joined, running_at
from tests.support.processes.windlass import free_port

PATH = "/v1/chat/completions"
CONNECTIONS = 32
STREAMS = 50
LIMITS = {
    "requests_per_minute": 10**9,
    "tokens_per_minute": 10**12,
    "concurrent_requests": 10**6,
}


@dataclass(frozen=True)
class Cost:
    """Result of a proxy: requests or chunks a second, and CPU µs for each."""

    rate: float
    cpu_us: float


async def measure(options: Options) -> list[Figure]:
    """See the module."""
    engine_port = free_port()
    with machine.apart() as (core, others), script("null_engine", str(engine_port)):
        engine = f"http://127.0.0.1:{engine_port}"
        async with split_gateway({**NO_AGENT, "limits": LIMITS}) as plant:
            found = await _all(plant, engine, core, others, options)
    return _figures(*found)


Both = tuple[Cost, Cost]


async def _all(
    plant: Plant, engine: str, core: set[int], others: set[int], options: Options
) -> tuple[Both, Both, Both, Both | None]:
    machine.pin(plant.pid("gateway"), core)
    model = plant.import_model()
    key = plant.windlass.owner_key
    async with joined(plant, running_at(engine)):
        ours = await _both(plant.windlass.port, plant.pid("gateway"), model, key, options)
        await asyncio.to_thread(plant.serve, model, engine="vllm")
        salted = await _both(plant.windlass.port, plant.pid("gateway"), model, key, options)
    # Idle, but what it does in the background must not fall on the next ones.
    machine.pin(plant.pid("gateway"), others)
    port = free_port()
    with script("floor_proxy", str(port), engine) as pid:
        machine.pin(pid, core)
        floor = await _both(port, pid, model, key, options)
    theirs = await _litellm(engine, core, model, plant.folder, options)
    return ours, salted, floor, theirs


async def _litellm(
    engine: str, core: set[int], model: str, folder: Path, options: Options
) -> Both | None:
    port = free_port()
    try:
        with litellm_env.running(port, model=model, engine=engine, folder=folder) as pid:
            machine.pin(pid, core)
            return await _both(port, pid, model, litellm_env.KEY, options)
    except (subprocess.CalledProcessError, RuntimeError) as error:
        print(f"LiteLLM is left out: {error}", file=sys.stderr)
        return None


async def _both(port: int, pid: int, model: str, key: str, options: Options) -> Both:
    messages = [{"role": "user", "content": "Hello, how are you today?"}]
    body = {"model": model, "messages": messages, "max_completion_tokens": 100}
    whole = post(PATH, json.dumps(body).encode(), key=key)
    stream = post(PATH, json.dumps({**body, "stream": True}).encode(), key=key)
    seconds = 3.0 if options.quick else 10.0
    # The first answer waits for the engine's route; the next second warms what is warmed.
    await repeat(port, whole, connections=1, seconds=0)
    await repeat(port, whole, connections=CONNECTIONS, seconds=1)
    rounds = 1 if options.quick else 3
    wholes = [
        await _cost(port, pid, whole, connections=CONNECTIONS, seconds=seconds, per_answer=1)
        for _ in range(rounds)
    ]
    chunks = null_engine.CHUNKS
    streams = [
        await _cost(port, pid, stream, connections=STREAMS, seconds=seconds, per_answer=chunks)
        for _ in range(rounds)
    ]
    return _median(wholes), _median(streams)


async def _cost(
    port: int, pid: int, request: bytes, *, connections: int, seconds: float, per_answer: int
) -> Cost:
    loop = asyncio.get_running_loop()
    began, spent = loop.time(), machine.cpu_seconds(pid)
    load = await repeat(port, request, connections=connections, seconds=seconds)
    took, spent = loop.time() - began, machine.cpu_seconds(pid) - spent
    count = len(load.seconds) * per_answer
    return Cost(rate=count / took, cpu_us=spent / count * 1e6)


def _median(costs: list[Cost]) -> Cost:
    def middle(of: Callable[[Cost], float]) -> float:
        return statistics.median(map(of, costs))

    return Cost(middle(lambda cost: cost.rate), middle(lambda cost: cost.cpu_us))


def _figures(ours: Both, salted: Both, floor: Both, theirs: Both | None) -> list[Figure]:
    (whole, stream), (least, least_stream) = ours, floor
    proxy = "bare aiohttp proxy"
    found = [
        at_least("chat_requests", whole.rate, "1/s", 8000).beside(proxy, least.rate),
        at_most("chat_cpu", whole.cpu_us, "µs/request", 120).beside(proxy, least.cpu_us),
        at_most("stream_cpu", stream.cpu_us, "µs/chunk", 30).beside(proxy, least_stream.cpu_us),
        plain("stream_chunks", stream.rate, "1/s").beside(proxy, least_stream.rate),
        plain("salted_chat_cpu", salted[0].cpu_us, "µs/request").beside("builtin", whole.cpu_us),
        plain("salted_stream_cpu", salted[1].cpu_us, "µs/chunk").beside("builtin", stream.cpu_us),
    ]
    if theirs is not None:
        name = litellm_env.REQUIREMENTS[0]
        rate = theirs[0].rate
        found += [
            replace(
                at_least(f"{subject}_requests_to_litellm", cost.rate / rate, "x", 50),
                peer=name,
                peer_value=rate,
                ratio=cost.rate / rate,
            )
            for subject, cost in (("chat", whole), ("salted_chat", salted[0]))
        ]
        found += [
            plain("chat_cpu_to_litellm", whole.cpu_us, "µs/request").beside(name, theirs[0].cpu_us),
            *(
                plain(f"{subject}_cpu_to_litellm", cost.cpu_us, "µs/chunk")
                .beside(name, theirs[1].cpu_us)
                .at_most_times(1 / 20)
                for subject, cost in (("stream", stream), ("salted_stream", salted[1]))
            ),
        ]
    return found
