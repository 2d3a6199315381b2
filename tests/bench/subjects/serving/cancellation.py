"""From the moment at which a client leaves to the moment at which the engine knows.

Through the gateway of `windlass serve`, streamed after the first chunk and not streamed, to an
engine at an address and to the same one across the tunnel, whose agent's end is this process. The
engine never ends an answer. The floor is the same client at the engine itself.
"""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import aiohttp
from tests.bench.figures import Figure, Options, at_most
from tests.bench.load import percentile, post
from tests.bench.plant import NO_AGENT, script, single
from tests.bench.stub_agent import StubAgent, joined
from tests.bench.subjects.serving.chat import PATH
from tests.support.processes.windlass import free_port
from tests.support.waiting import until

from windlass.api.clusters.v1 import clusters_pb2 as pb

BOUND_MS = 100.0
# A request that is this old has reached whatever it passes.
SETTLED_SECONDS = 0.2
NEAR, FAR = "bench-near", "bench-far"


async def measure(options: Options) -> list[Figure]:
    """The worst of each kind, and the worst at the engine itself."""
    times = 3 if options.quick else 30
    port = free_port()
    with script("endless_engine", str(port)), single(NO_AGENT) as plant:
        for name in (NEAR, FAR):
            plant.import_model(name)

        async def run(agent: StubAgent, workload: pb.Workload) -> None:
            # Of these names the operator allows one as an address; the other is of the agent alone.
            host = "127.0.0.1" if workload.engine.model == NEAR else "localhost"
            await agent.running(workload, f"http://{host}:{port}")

        engine = f"http://127.0.0.1:{port}"
        async with joined(plant, run, tunnelled=engine), aiohttp.ClientSession(engine) as session:
            key, found = plant.windlass.owner_key, []
            for streams in (True, False):
                floor = await _worst(Client(port, key, NEAR, streams), session, times)
                kind = "streamed" if streams else "whole"
                for model, way in ((NEAR, ""), (FAR, "_tunnelled")):
                    client = Client(plant.windlass.port, key, model, streams)
                    worst = await _worst(client, session, times)
                    figure = at_most(f"cancel_{kind}{way}", worst, "ms, the worst", BOUND_MS)
                    found.append(figure.beside("at the engine", floor))
    return found


@dataclass(frozen=True)
class Client:
    """Asks once and leaves."""

    port: int
    key: str
    model: str
    streams: bool

    async def leave(self, arrived: Callable[[], Awaitable[object]]) -> float:
        """The moment at which it left, once its request had `arrived` or its stream begun."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        messages = [{"role": "user", "content": "Hello?"}]
        body = {"model": self.model, "messages": messages, "stream": self.streams}
        writer.write(post(PATH, json.dumps(body).encode(), key=self.key))
        if self.streams:
            await reader.readuntil(b"data: ")
        await arrived()
        await asyncio.sleep(SETTLED_SECONDS)
        left = time.monotonic()
        writer.close()
        return left


async def _worst(client: Client, engine: aiohttp.ClientSession, times: int) -> float:
    """Milliseconds from a leave to its arrival, the longest of `times`."""

    async def told() -> tuple[int, list[float]]:
        async with engine.get("/") as answer:
            said = await answer.json()
        return said["asked"], said["left"]

    took = []
    for _ in range(times):
        asked, gone = await told()

        async def arrived(before: int = asked) -> bool | None:
            return (await told())[0] > before or None

        async def noticed(before: int = len(gone)) -> float | None:
            left = (await told())[1]
            return left[-1] if len(left) > before else None

        left = await client.leave(lambda: until(arrived))
        took.append(await until(noticed) - left)
    return percentile(took, 1.0) * 1000
