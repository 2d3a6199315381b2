"""Jobs created per second: through HTTP with every check, and at the store.

Without an agent, where jobs stay queued, in turns with an earlier commit of ours on the same
packages; and once with one, where the same process places each job and sends it to the agent
while the next ones come (`placed`).
"""

import asyncio
import time
from dataclasses import dataclass, replace
from statistics import median

import psutil
from tests.bench.earlier import earlier, served_by
from tests.bench.figures import Figure, Options, at_least, plain
from tests.bench.load import post, repeat
from tests.bench.plant import MANY_JOBS, Plant, postgres, single
from tests.bench.stub_agent import StubAgent, joined
from tests.support.environments.postgres import reachable_folder

from windlass.api.clusters.v1 import clusters_pb2
from windlass.core.config import Settings
from windlass.core.db import Database
from windlass.core.db.wake import Wake
from windlass.core.ids import new_id
from windlass.core.quotas import Quotas
from windlass.jobs.domain import transitions
from windlass.jobs.domain.job import Job, Plan, Spec
from windlass.jobs.storage.store import JobStore
from windlass.migrations import migrate

PATH = "/v1/fine_tuning/jobs"
# Of before creation was made to cost less.
PEER = "c7b8542"
RATE, TIMES = 300, 3
ROUNDS = 3
CONNECTIONS = 32
STORE_CALLERS = 256
PLAN = Plan(
    framework="trl",
    schema_version=1,
    config={"epochs": 3, "learning_rate": 1e-4, "batch_size": 8, "peft": {"r": 16, "alpha": 32}},
)


async def measure(options: Options) -> list[Figure]:
    """See the module."""
    seconds = 3.0 if options.quick else 10.0
    alone = await _alone(seconds, rounds=1 if options.quick else ROUNDS)
    with single(MANY_JOBS) as plant:
        async with joined(plant, _ignore):
            placed = await _through_http(plant, seconds)
    at_store = await _at_store(4_000 if options.quick else 40_000)
    return [
        *alone,
        plain("job_creates_http_placed", placed.rate, "1/s"),
        plain("job_creates_http_placed_cpu", placed.cpu_us, "µs/job"),
        at_least("job_creates_store", at_store, "1/s", 3000),
    ]


@dataclass(frozen=True)
class Created:
    """Jobs a second, the server's processor µs for each, and the p99 of an answer."""

    rate: float
    cpu_us: float
    p99_ms: float


async def _alone(seconds: float, *, rounds: int) -> list[Figure]:
    """Medians of rounds, each with the earlier commit before it where that can be had."""
    services = earlier(PEER)
    ours, theirs = [], []
    for _ in range(rounds):
        if services is not None:
            with served_by(services), single() as plant:
                theirs.append(await _through_http(plant, seconds))
        with single(MANY_JOBS) as plant:
            ours.append(await _through_http(plant, seconds))
    mine = _median(ours)
    rate = at_least("job_creates_http", mine.rate, "1/s", RATE)
    cpu = plain("job_creates_http_cpu", mine.cpu_us, "µs/job")
    p99 = plain("job_creates_http_p99", mine.p99_ms, "ms")
    if not theirs:
        return [rate, cpu, p99]
    peer = _median(theirs)
    rate = replace(
        rate,
        goal=f"≥ {RATE} or {TIMES} x {PEER}",
        met=mine.rate >= min(RATE, TIMES * peer.rate),
    )
    return [
        rate.beside(PEER, peer.rate),
        cpu.beside(PEER, peer.cpu_us),
        p99.beside(PEER, peer.p99_ms),
    ]


def _median(rounds: list[Created]) -> Created:
    return Created(
        median(one.rate for one in rounds),
        median(one.cpu_us for one in rounds),
        median(one.p99_ms for one in rounds),
    )


async def _ignore(agent: StubAgent, workload: clusters_pb2.Workload) -> None:
    pass


async def _through_http(plant: Plant, seconds: float) -> Created:
    request = post(PATH, plant.job_body(), key=plant.windlass.owner_key)
    await repeat(plant.windlass.port, request, connections=4, seconds=1)
    began, spent = time.perf_counter(), _server_cpu(plant)
    load = await repeat(plant.windlass.port, request, connections=CONNECTIONS, seconds=seconds)
    took, spent = time.perf_counter() - began, _server_cpu(plant) - spent
    count = len(load.seconds)
    return Created(count / took, spent / count * 1e6, load.percentile(0.99) * 1000)


def _server_cpu(plant: Plant) -> float:
    """Of the server's process alone; Postgres is a child of it and not counted."""
    times = psutil.Process(plant.pid()).cpu_times()
    return float(times.user + times.system)


async def _at_store(count: int) -> float:
    """Creations a second with many callers, each of its own request."""
    with reachable_folder() as folder:
        async with postgres(folder) as url:
            await asyncio.to_thread(migrate, url)
            database = Database(url)
            quotas = Quotas(Settings(quotas={"jobs": 0}).quotas)
            store = JobStore(database, Wake(url), quotas)
            try:
                await _create(store, STORE_CALLERS * 4)
                began = time.perf_counter()
                await _create(store, count)
                return count / (time.perf_counter() - began)
            finally:
                await store.close()
                await database.close()


async def _create(store: JobStore, count: int) -> None:
    left = iter(range(count))

    async def caller() -> None:
        for _ in left:
            await store.create(transitions.created(_job(), PLAN, 1))

    async with asyncio.TaskGroup() as group:
        for _ in range(STORE_CALLERS):
            group.create_task(caller())


def _job() -> Job:
    spec = Spec(
        model="bench-base",
        model_version_id="mv-bench",
        model_bytes=1000,
        training_file="file-bench",
        hyperparameters={"n_epochs": 3},
        metadata={"team": "bench"},
    )
    return Job(
        id=new_id("ftjob-"),
        organization_id="org-bench",
        project_id="proj_bench",
        request_id=new_id("request-"),
        spec=spec,
        created_at_ms=int(time.time() * 1000),
        model_name="ft:bench-base:bench::abcdefgh",
    )
