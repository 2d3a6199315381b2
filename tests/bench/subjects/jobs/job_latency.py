"""From the creation of a job through HTTP to the agent that has it, at 50 creations a second.

The clock of `job_latency` starts when the answer to the creation has come, that of
`job_latency_from_call` before its request was sent; both end when the agent, on the far end of
its watch, holds the workload.
"""

import time
from collections.abc import Awaitable, Callable
from functools import partial

import aiohttp
from tests.bench.figures import Figure, Options, at_most, plain
from tests.bench.load import paced, percentile
from tests.bench.plant import MANY_JOBS, Plant, single
from tests.bench.stub_agent import StubAgent, joined
from tests.support.waiting import until

from windlass.api.clusters.v1 import clusters_pb2

RATE = 50
PATH = "/v1/fine_tuning/jobs"


async def measure(options: Options) -> list[Figure]:
    """See the module."""
    with single(MANY_JOBS) as plant:
        calls, answers, arrivals = await _create(plant, RATE * (5 if options.quick else 30))
    since_answer = [max(0.0, arrivals[job] - at) for job, at in answers.items()]
    since_call = [arrivals[job] - at for job, at in calls.items()]
    return [
        at_most("job_latency_p50", 1000 * percentile(since_answer, 0.5), "ms", 10),
        at_most("job_latency_p99", 1000 * percentile(since_answer, 0.99), "ms", 50),
        plain("job_latency_from_call_p50", 1000 * percentile(since_call, 0.5), "ms"),
        plain("job_latency_from_call_p99", 1000 * percentile(since_call, 0.99), "ms"),
    ]


Times = dict[str, float]


async def _create(plant: Plant, count: int) -> tuple[Times, Times, Times]:
    calls: Times = {}
    answers: Times = {}
    arrivals: Times = {}
    body = plant.job_body()

    async def note(_: StubAgent, workload: clusters_pb2.Workload) -> None:
        arrivals.setdefault(workload.id, time.perf_counter())

    headers = {
        "authorization": f"Bearer {plant.windlass.owner_key}",
        "content-type": "application/json",
    }
    async with (
        joined(plant, note),
        aiohttp.ClientSession(plant.windlass.url, headers=headers) as session,
    ):

        async def create() -> str:
            began = time.perf_counter()
            async with session.post(PATH, data=body) as answer:
                job = str((await answer.json())["id"])
            calls[job], answers[job] = began, time.perf_counter()
            return job

        await _warm_up(create, arrivals)
        for known in (calls, answers):
            known.clear()
        await paced(create, count=count, rate=RATE)
        await until(lambda: calls.keys() <= arrivals.keys())
    return calls, answers, arrivals


async def _warm_up(create: Callable[[], Awaitable[str]], arrivals: Times) -> None:
    """The first jobs wait for the cluster to be known as live, and warm what is warmed."""
    for _ in range(20):
        job = await create()
        await until(partial(arrivals.get, job), holds=lambda at: at is not None)
