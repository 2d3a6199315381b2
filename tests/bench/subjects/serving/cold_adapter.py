"""From a chat with an adapter that no engine has to its first token, beside the engine's own load.

The built-in engine serves the base through `windlass serve`, with two places for adapters. Each
adapter is asked for twice: first it is not on the machine, then it is, and was pushed out of the
engine by those after it. They are registered as jobs register theirs, 160 MB each.
Beside it, in turns: a bare engine on the same folders, which is told to load the adapter by its own
route and asked the same chat, since on a CPU the first token takes as long as the load; for files
that are not there yet, and a copy of them as well, checked and synced.
"""

import asyncio
import hashlib
import os
import shutil
import statistics
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import grpc
from openai import AsyncOpenAI
from tests.bench.figures import Figure, Options, plain
from tests.bench.plant import Plant, served_on
from tests.bench.subjects.serving.cold_chat import first_token
from tests.support.factories.toy_model import make_adapter, make_model
from tests.support.processes.engine import RunningEngine, running_engine
from tests.support.services.platform import folder_files, manifest

from windlass.api.models.v1 import models_pb2 as pb
from windlass.api.models.v1.models_pb2_grpc import (
    ModelsInternalServiceAsyncStub,
    ModelsInternalServiceStub,
)
from windlass.core.db import Database
from windlass.core.rpc.tokens import TokenAuthority
from windlass.inference.planning.adapter_places import STAY_SECONDS

BASE, PLACES = "bench-base", 2
# As many numbers as rank 16 has for a model of 8 billion parameters: 40 million.
HIDDEN, LAYERS, RANK = 512, 32, 128
BOUND = 1.2
SETTINGS = {"log_level": "WARNING", "inference": {"max_adapters": PLACES}}
Register = Callable[[str], Coroutine[Any, Any, None]]


async def measure(options: Options) -> list[Figure]:
    """Medians over adapters, after one on each side that is not counted."""
    adapters, layers = (3, 2) if options.quick else (5, LAYERS)
    with TemporaryDirectory() as folder:
        base = make_model(Path(folder) / "base", hidden=HIDDEN, layers=layers)
        adapter = make_adapter(
            base, Path(folder) / "adapter", seed=1, r=RANK, target_modules="all-linear"
        )
        names = [f"ft:{BASE}:{number}" for number in range(adapters)]
        absent, evicted = list[float](), list[float]()
        loads, alone, copied = list[float](), list[float](), list[float]()
        async with served_on(SETTINGS) as (plant, url), _registering(plant, url, adapter) as make:
            with plant.client() as client:
                client.models.import_folder(BASE, base)
            for name in names:
                await make(name)
            with running_engine(base, max_adapters=PLACES, cold=True) as engine:
                async with _openai(plant) as openai, engine.client() as bare:
                    await _chat(openai, BASE)
                    for took in (absent, evicted):
                        for name in names:
                            # What came last is not pushed out at once.
                            await asyncio.sleep(STAY_SECONDS)
                            took.append(await _chat(openai, name))
                            loads.append(_load(engine, name, adapter))
                            alone.append(loads[-1] + await _chat(bare, name))
                            if took is absent:
                                copied.append(_copy(adapter, Path(folder) / "copies" / name))
    engine_alone, copies = statistics.median(alone[1:]), statistics.median(copied[1:])
    return [
        plain("cold_adapter", statistics.median(absent[1:]), "s")
        .beside("bare engine and a copy", engine_alone + copies)
        .at_most_times(BOUND),
        plain("cold_adapter_on_disk", statistics.median(evicted), "s")
        .beside("bare engine", engine_alone)
        .at_most_times(BOUND),
        plain("cold_adapter_load", statistics.median(loads[1:]), "s of a bare engine's load"),
    ]


def _openai(plant: Plant) -> AsyncOpenAI:
    key = plant.windlass.owner_key
    return AsyncOpenAI(base_url=f"{plant.windlass.url}/v1", api_key=key, max_retries=0)


async def _chat(openai: AsyncOpenAI, model: str) -> float:
    return await first_token(openai, model, time.perf_counter())


def _load(engine: RunningEngine, name: str, adapter: Path) -> float:
    """Seconds that the engine takes by its own route; it pushes the oldest out by itself."""
    with engine.http() as http:
        names = [one["id"] for one in http.get("/v1/models").json()["data"]]
        if name in names:
            http.post("/v1/unload_lora_adapter", json={"lora_name": name}).raise_for_status()
        body = {"lora_name": name, "lora_path": str(adapter)}
        began = time.perf_counter()
        http.post("/v1/load_lora_adapter", json=body).raise_for_status()
        return time.perf_counter() - began


def _copy(adapter: Path, to: Path) -> float:
    """Seconds to copy an adapter's files, read the copies' digests and have them on the disk."""
    began = time.perf_counter()
    shutil.copytree(adapter, to)
    for path in to.iterdir():
        with path.open("rb") as file:
            hashlib.file_digest(file, "sha256")
            os.fsync(file)
    return time.perf_counter() - began


@asynccontextmanager
async def _registering(plant: Plant, url: str, adapter: Path) -> AsyncIterator[Register]:
    """A way to register an adapter of the base as the service of jobs does, without a job."""
    database = Database(url)
    authority = TokenAuthority(database, kind="gateway", name="gateway")
    await authority.rotate()
    with plant.windlass.http() as http:
        project = http.get("/v1/me").json()["principal"]["project_id"]
    files = folder_files(adapter)

    async with grpc.aio.insecure_channel(plant.grpc_address) as channel:
        models: ModelsInternalServiceAsyncStub = ModelsInternalServiceStub(channel)

        async def register(name: str) -> None:
            prefix = f"jobs/bench-{name.rpartition(':')[2]}/1/"
            content = plant.windlass.data / "objects" / "content" / prefix
            content.parent.mkdir(parents=True, exist_ok=True)
            shutil.copytree(adapter, content, copy_function=os.link)
            metadata = (("windlass-service", authority.sign_service()),)
            asked = pb.ResolveModelRequest(project_id=project, id=BASE)
            base = (await models.ResolveModel(asked, metadata=metadata)).model
            request = pb.RegisterModelRequest(
                id=name,
                organization_id=base.organization_id,
                project_id=project,
                kind=pb.MODEL_KIND_ADAPTER,
                base_version_id=base.version_id,
                object_prefix=prefix,
                manifest=manifest(files),
                job_id="ftjob-bench",
                source=name,
            )
            await models.RegisterModel(request, metadata=metadata)

        try:
            yield register
        finally:
            await database.close()
