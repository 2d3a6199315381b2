"""Checkpoints of engines that come as deltas, put by the agent's own code and by one that lies."""

import asyncio
import hashlib
import io
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import httpx
import pytest
import zstandard
from tests.integration.inference.test_engine_trainings import (
    TRAINABLE,
    WEIGHTS,
    enable,
    serve,
    state,
    told,
)
from tests.integration.inference.test_inference import serving
from tests.integration.models.test_models import FILES
from tests.support.agents.wire_agent import WireAgent
from tests.support.services.platform import Platform
from tests.support.waiting import until

from windlass.api.clusters.v1 import clusters_pb2
from windlass.api.inference.v1 import inference_pb2 as pb
from windlass.api.models.v1 import models_pb2
from windlass.weight_versions.file_delta import MARK, write_delta
from windlass_agent.executors.process.trainings.checkpoint_folder import CheckpointFolder
from windlass_agent.executors.process.trainings.uploading import CheckpointUpload

NAME = "model.safetensors"
LEARNED = WEIGHTS[:-4] + b"new!"
RUNNING, SUCCEEDED = clusters_pb2.PHASE_RUNNING, clusters_pb2.PHASE_SUCCEEDED


@pytest.fixture
async def platform(database_url: str, tmp_path: Path) -> AsyncIterator[Platform]:
    async with serving(database_url, tmp_path) as (made, _):
        await made.import_model("mine", FILES, **made.tenant())
        yield made


@pytest.fixture
async def east(platform: Platform) -> WireAgent:
    made = await platform.live_cluster(engines=("vllm",), capacity=TRAINABLE)
    await enable(platform)
    await serve(made)
    return made


async def ask(on: Platform, east: WireAgent) -> clusters_pb2.Workload:
    """The workload of a new checkpoint."""
    request = pb.CreateEngineCheckpointRequest(model="mine", suffix="x")
    made = await on.inference.CreateEngineCheckpoint(request, **on.tenant())
    return await told(east, made.id)


def delta_to(parent: bytes, child: bytes = LEARNED) -> bytes:
    out = io.BytesIO()
    write_delta(io.BytesIO(parent), io.BytesIO(child), out, size=len(child), bound=len(child))
    return out.getvalue()


async def announce(east: WireAgent, workload: clusters_pb2.Workload, **sizes: int) -> None:
    deltas = [models_pb2.FileUrl(path=f"{name}.safetensors", bytes=sizes[name]) for name in sizes]
    said = clusters_pb2.EngineTrainingStatus(deltas=deltas)
    await east.report(workload, RUNNING, reason="Uploading", training=said)


async def offered(east: WireAgent, workload: clusters_pb2.Workload) -> clusters_pb2.Workload:
    def there() -> clusters_pb2.Workload | None:
        found = east.workloads[workload.id]
        return found if found.engine_training.delta_uploads else None

    return await until(there)


async def put(url: str, content: bytes) -> None:
    async with httpx.AsyncClient() as http:
        (await http.put(url, content=content)).raise_for_status()


async def end(east: WireAgent, identifier: str, learned: bytes = LEARNED) -> None:
    """Says that all files of a checkpoint were put."""
    sha256 = hashlib.sha256(learned).digest()
    file = models_pb2.FileUrl(path=NAME, bytes=len(learned), sha256=sha256)
    said = clusters_pb2.EngineTrainingStatus(files=[file])
    await east.report(east.workloads[identifier], SUCCEEDED, training=said)


async def stored(on: Platform, prefix: str) -> dict[str, bytes]:
    found = {}
    async for one in on.app.objects.list(prefix):
        parts = [part async for part in on.app.objects.get(one.key)]
        found[one.key.removeprefix(prefix)] = b"".join(parts)
    return found


async def upload(
    east: WireAgent, workload: clusters_pb2.Workload, folder: Path, *, model: bytes | None
) -> None:
    """What the agent does with a checkpoint; `model` is the file that it has of the parent."""
    (folder / "run-1/checkpoint").mkdir(parents=True)
    (folder / "run-1/checkpoint" / NAME).write_bytes(LEARNED)
    (folder / "model").mkdir()
    if model is not None:
        (folder / "model" / NAME).write_bytes(model)
    reports: set[asyncio.Task[None]] = set()

    def tell(deltas: list[models_pb2.FileUrl]) -> None:
        said = clusters_pb2.EngineTrainingStatus(deltas=deltas)
        reports.add(asyncio.create_task(east.report(workload, RUNNING, training=said)))

    made = CheckpointUpload(
        lambda: east.workloads[workload.id].engine_training,
        lambda _: folder / "model",
        tell,
        folder / "scratch",
    )
    files = await made.put(CheckpointFolder(folder, "run-1"))
    await asyncio.gather(*reports)
    assert not (folder / "scratch").exists()
    said = clusters_pb2.EngineTrainingStatus(files=files)
    await east.report(east.workloads[workload.id], SUCCEEDED, training=said)


async def test_readers_see_whole_files_whatever_came(
    platform: Platform, east: WireAgent, tmp_path: Path
) -> None:
    """A delta where the agent has the parent, and else the file: the same bytes are there."""
    for number, model in enumerate((WEIGHTS, None, LEARNED)):
        workload = await ask(platform, east)
        await upload(east, workload, tmp_path / f"agent-{number}", model=model)
        saved = await state(platform, workload.id, pb.ENGINE_TRAINING_STATE_SUCCEEDED)
        came = len(delta_to(WEIGHTS)) if model == WEIGHTS else len(WEIGHTS)
        assert (saved.weight_bytes, saved.uploaded_bytes) == (len(WEIGHTS), came)
        resolve = models_pb2.ResolveModelRequest(project_id="proj-a", id=saved.checkpoint_model)
        made = await platform.models_internal.ResolveModel(resolve)
        assert await stored(platform, made.object_prefix) == FILES | {NAME: LEARNED}
        await until(partial(is_empty, platform, f"artifacts/proj-a/{workload.id}.deltas/"))


async def is_empty(on: Platform, prefix: str) -> bool:
    return not await stored(on, prefix)


def bomb() -> bytes:
    """A chunk that would be a thousand times as large as the file's."""
    frame = zstandard.ZstdCompressor().compress(bytes(1000 * len(WEIGHTS)))
    return MARK + len(frame).to_bytes(4, "little") + frame


LIES = {
    "of another parent": delta_to(WEIGHTS[:-4] + b"else"),
    "cut": delta_to(WEIGHTS)[:-1],
    "longer": delta_to(WEIGHTS) + b"\0",
    "bomb": bomb(),
    "of other weights": delta_to(WEIGHTS, WEIGHTS[:-4] + b"else"),
}


async def test_nothing_becomes_a_model_that_is_not_what_was_said(
    platform: Platform, east: WireAgent
) -> None:
    for why, lie in LIES.items():
        workload = await ask(platform, east)
        await announce(east, workload, model=len(lie))
        workload = await offered(east, workload)
        (place,) = workload.engine_training.delta_uploads
        assert (place.path, place.bytes) == (NAME, len(lie)), why
        await put(place.url, lie)
        await end(east, workload.id)
        failed = await state(platform, workload.id, pb.ENGINE_TRAINING_STATE_FAILED)
        assert (failed.reason, failed.checkpoint_model) == ("upload_mismatch", ""), why
        assert NAME not in await stored(platform, f"artifacts/proj-a/{workload.id}/"), why


async def test_a_place_takes_a_delta_of_the_announced_size_alone(
    platform: Platform, east: WireAgent
) -> None:
    workload = await ask(platform, east)
    await announce(east, workload, model=100, other=10)
    (place,) = (await offered(east, workload)).engine_training.delta_uploads
    async with httpx.AsyncClient() as http:
        for size in (99, 101):
            assert (await http.put(place.url, content=bytes(size))).status_code >= 400
    # What was announced once is what there is.
    await announce(east, east.workloads[workload.id], model=50)
    await put(east.workloads[workload.id].engine_training.uploads[0].url, LEARNED)
    await end(east, workload.id)
    saved = await state(platform, workload.id, pb.ENGINE_TRAINING_STATE_SUCCEEDED)
    assert saved.uploaded_bytes == len(WEIGHTS)


async def test_a_delta_that_is_no_smaller_than_its_file_has_no_place(
    platform: Platform, east: WireAgent
) -> None:
    for size in (0, -1, len(WEIGHTS), 2**62):
        workload = await ask(platform, east)
        await announce(east, workload, model=size)
        await put(workload.engine_training.uploads[0].url, LEARNED)
        await state(platform, workload.id, pb.ENGINE_TRAINING_STATE_RUNNING)
        assert not east.workloads[workload.id].engine_training.delta_uploads
        await end(east, workload.id)
        await state(platform, workload.id, pb.ENGINE_TRAINING_STATE_SUCCEEDED)


async def test_without_its_parent_no_delta_becomes_a_model(
    platform: Platform, east: WireAgent
) -> None:
    workload = await ask(platform, east)
    await announce(east, workload, model=len(delta_to(WEIGHTS)))
    workload = await offered(east, workload)
    await put(workload.engine_training.delta_uploads[0].url, delta_to(WEIGHTS))
    resolve = models_pb2.ResolveModelRequest(project_id="proj-a", id="mine")
    parent = await platform.models_internal.ResolveModel(resolve)
    await platform.app.objects.delete(parent.object_prefix + NAME)
    await end(east, workload.id)
    failed = await state(platform, workload.id, pb.ENGINE_TRAINING_STATE_FAILED)
    assert failed.reason == "upload_mismatch"
