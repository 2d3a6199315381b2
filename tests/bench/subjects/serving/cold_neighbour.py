"""A tenant's chat while another holds 500 event streams and has four engines started.

`windlass serve` as it is by default, with its own agent and real engines of tiny models: one
serves the tenant's chat, and four of the other start cold, confined, side by side, each as soon as
it is asked for the first time. A round lasts until all four have answered; a quiet one of the same
length follows. Unlike in `noisy_neighbour`, what engines take of each other's processors counts.
"""

import asyncio
import json
import statistics
import time
from pathlib import Path

from tests.bench.figures import Figure, Options, at_most, plain
from tests.bench.load import percentile, steady
from tests.bench.plant import Plant, single
from tests.bench.stub_agent import StubAgent, joined
from tests.bench.subjects.serving.chat import PATH
from tests.bench.subjects.serving.noisy_neighbour import RATE, noise, queue_jobs
from tests.support.factories.tenants import Caller, make_tenants
from tests.support.factories.toy_model import make_model

from windlass.api.clusters.v1 import clusters_pb2
from windlass.client import Windlass as Client

COLD = 4
SLICE_SECONDS = 2.0


async def measure(options: Options) -> list[Figure]:
    """See the module."""
    rounds = 1 if options.quick else 3
    quiet, noisy, starts = list[float](), list[float](), list[float]()
    with single(_settings(1 + COLD * rounds)) as plant:
        tenants = make_tenants(plant.windlass)
        mine, other = tenants.strange_member, tenants.member
        source = make_model(plant.folder / "model")
        names = [f"cold-{number}" for number in range(COLD * rounds)]
        _import(mine, source, ["mine"])
        _import(other, source, names)
        _leave_engines_alone(plant)
        async with joined(plant, _do_nothing, roles=["jobs"]):
            jobs = queue_jobs(other, names[0])
            await _chat(mine, "mine")
            await _load(mine)
            for number in range(rounds):
                cold = names[number * COLD : (number + 1) * COLD]
                async with noise(other, jobs, []):
                    starting = asyncio.ensure_future(
                        asyncio.gather(*(_chat(other, name) for name in cold))
                    )
                    slices = 0
                    while not starting.done():
                        noisy += await _load(mine)
                        slices += 1
                    starts += starting.result()
                for _ in range(slices):
                    quiet += await _load(mine)
    before, after = (percentile(kind, 0.99) for kind in (quiet, noisy))
    return [
        at_most("neighbour_cold_p99", after / before, "x quiet", 2),
        plain("neighbour_cold_p99_quiet", before * 1000, "ms"),
        plain("neighbour_cold_p99_noisy", after * 1000, "ms"),
        plain("neighbour_cold_start", statistics.median(starts), "s to a cold model's answer"),
    ]


def _settings(engines: int) -> dict[str, object]:
    return {
        "agent": {"engine_slots": engines, "confinement": "required"},
        "inference": {"max_engines": engines},
        "log_level": "WARNING",
        "quotas": {"engines": engines, "event_streams": 500, "jobs": 100},
    }


def _import(caller: Caller, source: Path, names: list[str]) -> None:
    with Client(caller.windlass.url, caller.key) as client:
        for name in names:
            client.models.import_folder(name, source)


def _leave_engines_alone(plant: Plant) -> None:
    """Has the server's own machine take no jobs: they are to wait elsewhere, for their streams."""
    with plant.windlass.http() as http:
        (local,) = http.get("/v1/clusters").raise_for_status().json()["data"]
        path = f"/v1/clusters/{local['id']}"
        http.patch(path, json={"roles": ["engines"]}).raise_for_status()


async def _do_nothing(agent: StubAgent, workload: clusters_pb2.Workload) -> None:
    """Takes a job and never starts it."""


async def _load(caller: Caller) -> list[float]:
    return await steady(
        caller.windlass.port,
        PATH,
        _body("mine"),
        key=caller.key,
        rate=RATE,
        seconds=SLICE_SECONDS,
    )


async def _chat(caller: Caller, model: str) -> float:
    """Seconds of one chat; raises RuntimeError when it is refused."""
    port, began = caller.windlass.port, time.perf_counter()
    await steady(port, PATH, _body(model), key=caller.key, rate=1.0, seconds=1.0)
    return time.perf_counter() - began


def _body(model: str) -> bytes:
    chat = {"model": model, "messages": [{"role": "user", "content": "Hi?"}], "max_tokens": 1}
    return json.dumps(chat).encode()
