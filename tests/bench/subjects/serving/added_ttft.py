"""What the gateway adds to the time to a stream's first event, at 1,000 chunks a second.

Ten streams at once of 25 chunks each, one each 10 ms, through the gateway, which runs alone on one
core, to an engine that answers at once and computes nothing: a vLLM for the gateway, so that each
request is checked, salted and given a priority. The floor is the same client at the engine itself,
and the peer a bare proxy on aiohttp on the gateway's core, in turns.
"""

import asyncio
import json

import uvloop
from tests.bench import machine
from tests.bench.figures import Figure, Options, at_most, plain
from tests.bench.load import post
from tests.bench.plant import NO_AGENT, script, split_gateway
from tests.bench.streams import Pace, stream
from tests.bench.stub_agent import joined, running_at
from tests.bench.subjects.serving.chat import LIMITS, PATH
from tests.support.processes.windlass import free_port

STREAMS, CHUNKS = 10, 25
BOUNDS_MS = {0.5: 2.0, 0.99: 10.0}


async def measure(options: Options) -> list[Figure]:
    """See the module; the client is on the loop that servers run on, in a thread of its own."""
    return await asyncio.to_thread(lambda: uvloop.run(_measure(options)))


async def _measure(options: Options) -> list[Figure]:
    rounds, seconds = (1, 2.0) if options.quick else (3, 6.0)
    ours, floor, bare = Pace(), Pace(), Pace()
    port, proxy = free_port(), free_port()
    engine = f"http://127.0.0.1:{port}"
    with (
        machine.apart() as (core, _),
        script("null_engine", str(port)),
        script("floor_proxy", str(proxy), engine) as proxy_pid,
    ):
        async with split_gateway({**NO_AGENT, "limits": LIMITS}) as plant:
            for pid in (plant.pid("gateway"), proxy_pid):
                machine.pin(pid, core)
            model = plant.import_model()
            async with joined(plant, running_at(engine)):
                await asyncio.to_thread(plant.serve, model, engine="vllm")
                request = post(PATH, _body(model), key=plant.windlass.owner_key)

                async def load(to: int, lasting: float, into: Pace) -> None:
                    await stream(to, request, connections=STREAMS, seconds=lasting, into=into)

                each = ((port, floor), (proxy, bare), (plant.windlass.port, ours))
                for to, _ in each:
                    await load(to, 0.5, Pace())
                for _ in range(rounds):
                    for to, pace in each:
                        await load(to, seconds, pace)
    return _figures(ours, floor, bare)


def _figures(ours: Pace, floor: Pace, bare: Pace) -> list[Figure]:
    found = []
    for share, bound in BOUNDS_MS.items():
        mine, least, theirs = (one.first_ms(share) for one in (ours, floor, bare))
        name = f"ttft_added_p{share * 100:.0f}"
        added = at_most(name, mine - least, "ms", bound)
        found += [
            added.beside("bare aiohttp proxy", theirs - least),
            plain(name.replace("_added", ""), mine, "ms").beside("engine alone", least),
        ]
    return found


def _body(model: str) -> bytes:
    messages = [{"role": "user", "content": "Hello, how are you today?"}]
    body = {"model": model, "messages": messages, "max_completion_tokens": CHUNKS, "stream": True}
    return json.dumps(body).encode()
