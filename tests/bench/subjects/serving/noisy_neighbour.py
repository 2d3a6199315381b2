"""A tenant's chat while another holds 500 event streams and asks for 4 models that are cold.

`windlass serve` as it is by default, one process, which serves both. Engines compute nothing, and
those of the cold models never come, so that what is measured is the platform: how tenants share
it, not how engines share processors, which `cold_neighbour` measures. Quiet and noisy rounds
alternate.
"""

import asyncio
import contextlib
import json
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from pathlib import Path

from tests.bench.figures import Figure, Options, at_most, plain
from tests.bench.load import percentile, steady
from tests.bench.plant import PROGRAMS, script, single
from tests.bench.stub_agent import StubAgent, joined
from tests.bench.subjects.serving.chat import PATH
from tests.support.factories.feather import make_feather
from tests.support.factories.tenants import Caller, make_tenants
from tests.support.processes.front_door import GOOD, jsonl, upload
from tests.support.processes.windlass import free_port

from windlass.api.clusters.v1 import clusters_pb2
from windlass.client import Windlass as Client

RATE = 50.0
JOBS, COLD = 10, 4
SETTINGS = {
    "agent": {"enabled": False},
    "log_level": "WARNING",
    "quotas": {"event_streams": 500, "jobs": 100},
}


async def measure(options: Options) -> list[Figure]:
    """See the module."""
    quiet: list[float] = []
    noisy: list[float] = []
    seconds = 4.0 if options.quick else 20.0
    port = free_port()
    with script("null_engine", str(port)), single(SETTINGS) as plant:
        tenants = make_tenants(plant.windlass)
        mine = _import(tenants.strange_member, plant.folder, "mine")

        async def serve(agent: StubAgent, workload: clusters_pb2.Workload) -> None:
            wanted = workload.desired == clusters_pb2.DESIRED_STATE_RUNNING
            if wanted and "mine" in str(workload):
                await agent.running(workload, f"http://127.0.0.1:{port}")

        async with joined(plant, serve):
            body = json.dumps({"model": mine, "messages": [{"role": "user", "content": "Hi?"}]})
            noisy_one = tenants.member
            cold = [_import(noisy_one, plant.folder, f"cold-{number}") for number in range(COLD)]
            jobs = queue_jobs(noisy_one, cold[0])

            async def load(lasting: float) -> list[float]:
                return await steady(
                    plant.windlass.port,
                    PATH,
                    body.encode(),
                    key=tenants.strange_member.key,
                    rate=RATE,
                    seconds=lasting,
                )

            await load(2.0)
            for _ in range(1 if options.quick else 3):
                quiet += await load(seconds)
                async with noise(noisy_one, jobs, cold):
                    noisy += await load(seconds)
    before, after = (percentile(kind, 0.99) for kind in (quiet, noisy))
    return [
        at_most("neighbour_p99", after / before, "x quiet", 2),
        plain("neighbour_p99_quiet", before * 1000, "ms"),
        plain("neighbour_p99_noisy", after * 1000, "ms"),
    ]


def _import(caller: Caller, folder: Path, name: str) -> str:
    source = make_feather(folder / f"model-{name}")
    (source / "config.json").write_text(json.dumps({"model_type": "llama", "name": name}))
    with Client(caller.windlass.url, caller.key) as client:
        client.models.import_folder(name, source)
    return name


def queue_jobs(noisy: Caller, model: str) -> list[str]:
    """Creates jobs; answers their ids."""
    client = noisy.openai()
    file = upload(client, jsonl([GOOD] * 20), name="noise.jsonl").id
    made = [client.fine_tuning.jobs.create(model=model, training_file=file) for _ in range(JOBS)]
    return [job.id for job in made]


@contextlib.asynccontextmanager
async def noise(noisy: Caller, jobs: list[str], cold: list[str]) -> AsyncIterator[None]:
    """500 streams of the events of some jobs, and chats that wait for models, during the block."""
    path = PROGRAMS / "noise.py"
    arguments = (str(noisy.windlass.port), noisy.key, json.dumps(jobs), json.dumps(cold))
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(path), *arguments, stdout=PIPE
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(60):
            if await process.stdout.readline() != b"open\n":
                raise RuntimeError("the noise ended by itself")
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
