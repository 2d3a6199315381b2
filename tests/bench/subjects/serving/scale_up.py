"""From a step in load to the moment at which an agent is told of the second and third engine.

Twelve streams begin at once on a model that has one engine and should have one for every four open
requests, three at most. The floor is the same change by hand: the least number of engines set to
three. Each round has a model of its own; engines compute nothing.
"""

import asyncio
import json
import time
from collections import defaultdict
from collections.abc import Coroutine
from typing import Any

from tests.bench.figures import Figure, Options, at_most, plain
from tests.bench.load import percentile, post
from tests.bench.plant import NO_AGENT, Plant, script, single
from tests.bench.streams import Pace, stream
from tests.bench.stub_agent import StubAgent, joined, running_at
from tests.bench.subjects.serving.chat import PATH
from tests.support.processes.windlass import free_port
from tests.support.waiting import until

from windlass.api.clusters.v1 import clusters_pb2 as pb

TARGET, MOST = 4, 3
SETTINGS = {**NO_AGENT, "inference": {"max_engines": 1000}, "quotas": {"engines": 1000}}
# Streams last longer than the decision.
CHUNKS = 500


async def measure(options: Options) -> list[Figure]:
    """The worst of some rounds."""
    rounds = 1 if options.quick else 6
    told = defaultdict[str, set[str]](set)
    port = free_port()
    with script("null_engine", str(port)), single(SETTINGS) as plant:
        report = running_at(f"http://127.0.0.1:{port}")

        async def run(agent: StubAgent, workload: pb.Workload) -> None:
            told[workload.engine.model].add(workload.id)
            await report(agent, workload)

        by_load, by_hand = list[float](), list[float]()
        async with joined(plant, run):
            for number in range(rounds):
                for kind, change, took in (
                    ("load", _load, by_load),
                    ("hand", _set, by_hand),
                ):
                    model = plant.import_model(f"bench-{kind}-{number}")
                    await asyncio.to_thread(_serve_one, plant, model)
                    took.append(await _seconds(change(plant, model), told[model]))
    worst, least = percentile(by_load, 1.0), percentile(by_hand, 1.0)
    return [
        at_most("scale_up_decided", worst, "s, the worst", 2).beside("set by hand", least),
        plain("scale_up_decided_p50", percentile(by_load, 0.5), "s"),
    ]


def _serve_one(plant: Plant, model: str) -> None:
    plant.serve(model, min_replicas=1, max_replicas=MOST, target_requests=TARGET)


async def _seconds(change: Coroutine[Any, Any, None], told: set[str]) -> float:
    """Seconds from the beginning of a change to the last engine that it makes."""
    began = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        group.create_task(change)
        await until(lambda: len(told) == MOST)
        return time.perf_counter() - began


async def _load(plant: Plant, model: str) -> None:
    messages = [{"role": "user", "content": "Hello?"}]
    body = {"model": model, "messages": messages, "max_completion_tokens": CHUNKS, "stream": True}
    request = post(PATH, json.dumps(body).encode(), key=plant.windlass.owner_key)
    port = plant.windlass.port
    await stream(port, request, connections=TARGET * MOST, seconds=0, into=Pace())


async def _set(plant: Plant, model: str) -> None:
    def put() -> None:
        with plant.windlass.http() as http:
            body = {"min_replicas": MOST, "max_replicas": MOST, "target_requests": TARGET}
            http.put(f"/v1/servings/{model}", json=body).raise_for_status()

    await asyncio.to_thread(put)
