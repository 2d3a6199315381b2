"""Trainings of engines through their RPCs, with real models, clusters and usage.

The test is the agent, so that it can lie, be silent, and lose its engine; a real engine is trained
in tests/integration/plugin/test_train_a_served_model.py.
"""

import hashlib
import math
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import httpx
import msgspec
import pytest
from tests.integration.inference.test_inference import serving
from tests.integration.models.test_models import FILES
from tests.support.agents.wire_agent import WireAgent
from tests.support.services.platform import Platform, manifest
from tests.support.waiting import until

from windlass.api.clusters.v1 import clusters_pb2
from windlass.api.inference.v1 import inference_pb2 as pb
from windlass.api.models.v1 import models_pb2
from windlass.core.errors import from_rpc
from windlass.models.grants.store import GrantStore

WEIGHTS = FILES["model.safetensors"]
RUNNING, DELETED = clusters_pb2.DESIRED_STATE_RUNNING, clusters_pb2.DESIRED_STATE_DELETED
HELD_OUT = pb.TrainingSample(context_ids=[5], continuation_ids=[6])
TRAINABLE = clusters_pb2.Capacity(training_engines=["vllm"])


@pytest.fixture
async def platform(database_url: str, tmp_path: Path) -> AsyncIterator[Platform]:
    async with serving(database_url, tmp_path) as (made, _):
        await made.import_model("mine", FILES, **made.tenant())
        yield made


@pytest.fixture
async def east(platform: Platform) -> WireAgent:
    return await platform.live_cluster(engines=("vllm",), capacity=TRAINABLE)


async def enable(on: Platform, training: str = "hogwild", **words: Any) -> None:
    usual: dict[str, Any] = {"model": "mine", "min_replicas": 1, "engine": "vllm"}
    request = pb.PutServingRequest(training=training, **(usual | words))
    await on.inference.PutServing(request, **on.tenant())


def lesson(**words: Any) -> pb.CreateEngineTrainingRequest:
    sample = pb.TrainingSample(context_ids=[1, 2], continuation_ids=[3])
    usual: dict[str, Any] = {"epochs": 4, "batch": 1, "rank": 8, "max_seconds": 60}
    usual |= {"model": "mine", "samples": [sample], "optimizer": "sgd", "learning_rate": 0.1}
    return pb.CreateEngineTrainingRequest(**(usual | words))


def datum(**inputs: pb.TrainingTensor) -> pb.TrainingDatum:
    """A policy's, with other inputs where they are named."""
    usual = {name: pb.TrainingTensor(floats=[0.5, -2.0]) for name in ("logprobs", "advantages")}
    usual |= {"target_tokens": pb.TrainingTensor(ints=[2, 3])}
    return pb.TrainingDatum(tokens=[1, 2], loss_fn_inputs=usual | inputs)


def policy(**words: Any) -> dict[str, Any]:
    return {"samples": [], "datums": [datum()], "loss": "ppo"} | words


def guard(**words: Any) -> pb.TrainingGuard:
    usual: dict[str, Any] = {"samples": [HELD_OUT], "every": 2}
    return pb.TrainingGuard(**(usual | words))


async def train(on: Platform, who: str = "proj-a", **words: Any) -> pb.EngineTraining:
    return await on.inference.CreateEngineTraining(lesson(**words), **on.tenant(who))


async def refusal(call: Any) -> tuple[str, str]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    error = from_rpc(caught.value)
    return error.reason, error.param or ""


async def serve(east: WireAgent) -> clusters_pb2.Workload:
    """Has an engine of the model run that can be trained."""
    engine = await east.next_engine("mine", lambda one: bool(one.engine.training))
    able = clusters_pb2.EngineCapabilities(context_length=512, training=True)
    await east.report(
        engine, clusters_pb2.PHASE_RUNNING, endpoint="unix:///run/e/s", capabilities=able
    )
    return engine


async def told(east: WireAgent, identifier: str, generation: int = 1) -> clusters_pb2.Workload:
    def there() -> clusters_pb2.Workload | None:
        found = east.workloads.get(identifier)
        return found if found is not None and found.generation >= generation else None

    return await until(there)


async def state(on: Platform, identifier: str, expected: int) -> pb.EngineTraining:
    async def there() -> pb.EngineTraining | None:
        request = pb.GetEngineTrainingRequest(id=identifier)
        found = await on.inference.GetEngineTraining(request, **on.tenant())
        return found if found.state == expected else None

    return await until(there)


def steps(first: int, last: int) -> clusters_pb2.EngineTrainingStatus:
    recent = [
        clusters_pb2.EngineTrainingStep(step=one, loss=1 / one, tokens=3, seconds=0.1)
        for one in range(first, last + 1)
    ]
    return clusters_pb2.EngineTrainingStatus(steps=last, total_steps=4, recent=recent)


async def succeed(on: Platform, east: WireAgent, training: pb.EngineTraining) -> None:
    workload = await told(east, training.id)
    await east.report(workload, clusters_pb2.PHASE_SUCCEEDED, training=steps(1, 4))
    await state(on, training.id, pb.ENGINE_TRAINING_STATE_SUCCEEDED)


async def newest(on: Platform, who: str = "proj-a") -> list[pb.EngineTraining]:
    call = on.inference.ListEngineTrainings(pb.ListEngineTrainingsRequest(), **on.tenant(who))
    return list((await call).trainings)


async def test_a_training_is_a_row_then_a_workload_and_is_forgotten(
    platform: Platform, east: WireAgent
) -> None:
    await enable(platform)
    first = await train(platform, idempotency_key="one")
    second = await train(platform)
    assert (await train(platform, idempotency_key="one")).id == first.id
    changed = train(platform, idempotency_key="one", epochs=5)
    assert await refusal(changed) == ("body_differs", "idempotency_key")
    engine = await serve(east)
    workload = await told(east, first.id)
    order = workload.engine_training
    assert (workload.desired, order.engine_id) == (RUNNING, engine.id)
    async with httpx.AsyncClient() as http:
        body = (await http.get(order.request.url)).content
    assert hashlib.sha256(body).digest() == order.request.sha256
    asked = msgspec.json.decode(body)
    assert (asked["mode"], asked["idempotency_key"]) == ("hogwild", first.id)
    # What an agent says beyond what can be is left out, and nothing is noted twice.
    await east.report(workload, clusters_pb2.PHASE_RUNNING, training=steps(1, 2))
    running = await state(platform, first.id, pb.ENGINE_TRAINING_STATE_RUNNING)
    assert (running.steps, running.total_steps, running.loss) == (2, 4, 0.5)
    await east.report(workload, clusters_pb2.PHASE_SUCCEEDED, training=steps(1, 9))
    done = await state(platform, first.id, pb.ENGINE_TRAINING_STATE_SUCCEEDED)
    assert (done.steps, done.tokens, done.loss) == (4, 12, 0.25)
    watch = platform.inference.WatchEngineTraining(
        pb.WatchEngineTrainingRequest(id=first.id, after=1), **platform.tenant()
    )
    seen = [step.step for progress in [one async for one in watch] for step in progress.steps]
    assert seen == [2, 3, 4]
    assert (await told(east, first.id, 2)).desired == DELETED
    # The next one begins when the one before has ended.
    await told(east, second.id)


async def test_datums_are_handed_on_and_their_tokens_counted(
    platform: Platform, east: WireAgent
) -> None:
    await enable(platform)
    made = await train(platform, **policy(loss_config={"clip_low_threshold": 0.5}))
    await serve(east)
    workload = await told(east, made.id)
    async with httpx.AsyncClient() as http:
        asked = msgspec.json.decode((await http.get(workload.engine_training.request.url)).content)
    assert "samples" not in asked
    assert (asked["loss"], asked["loss_config"]) == ("ppo", {"clip_low_threshold": 0.5})
    numbers = {"dtype": "float32", "data": [0.5, -2.0]}
    targets = {"dtype": "int64", "data": [2, 3]}
    inputs = {"logprobs": numbers, "advantages": numbers, "target_tokens": targets}
    tokens = {"chunks": [{"tokens": [1, 2]}]}
    assert asked["datums"] == [{"model_input": tokens, "loss_fn_inputs": inputs}]
    await east.report(workload, clusters_pb2.PHASE_SUCCEEDED, training=steps(1, 4))
    done = await state(platform, made.id, pb.ENGINE_TRAINING_STATE_SUCCEEDED)
    assert (done.steps, done.tokens) == (4, 8)


async def test_datums_that_do_not_fit_are_refused(platform: Platform, east: WireAgent) -> None:
    await enable(platform)
    tensor, inputs = pb.TrainingTensor, "datums.0.loss_fn_inputs"
    sample = pb.TrainingSample(context_ids=[1], continuation_ids=[2])
    wrong: list[tuple[str, dict[str, Any]]] = [
        ("datums", policy(samples=[sample])),
        ("loss", {"loss": "ppo"}),
        ("loss", policy(loss="")),
        ("loss", policy(loss="custom")),
        ("loss_config.beta", policy(loss_config={"beta": 1.0})),
        ("loss_config.clip_low_threshold", policy(loss_config={"clip_low_threshold": -1.0})),
        ("loss_config.clip_high_threshold", policy(loss_config={"clip_high_threshold": math.inf})),
        ("loss_config", policy(loss_config={"clip_low_threshold": 2.0})),
        ("datums.0.model_input", policy(datums=[pb.TrainingDatum()])),
        (f"{inputs}.advantages", policy(datums=[pb.TrainingDatum(tokens=[1])])),
        (f"{inputs}.weights", policy(datums=[datum(weights=tensor(floats=[1, 1]))])),
        (f"{inputs}.mask", policy(datums=[datum(mask=tensor(floats=[1]))])),
        (f"{inputs}.mask", policy(datums=[datum(mask=tensor(ints=[1, 1]))])),
        (f"{inputs}.mask", policy(datums=[datum(mask=tensor(floats=[1, math.nan]))])),
        (f"{inputs}.mask", policy(datums=[datum(mask=tensor(floats=[1, 1e39]))])),
        (f"{inputs}.mask", policy(datums=[datum(mask=tensor(floats=[1, 1], shape=[2, 1]))])),
        (f"{inputs}.target_tokens", policy(datums=[datum(target_tokens=tensor(ints=[1]))])),
        (f"{inputs}.target_tokens", policy(datums=[datum(target_tokens=tensor(ints=[1, -1]))])),
        (f"{inputs}.target_tokens", policy(datums=[datum(target_tokens=tensor(floats=[1, 1]))])),
    ]
    for param, words in wrong:
        assert (await refusal(train(platform, **words)))[1] == param, words
    assert await newest(platform) == []


async def test_what_cannot_be_trained_says_why(platform: Platform, east: WireAgent) -> None:
    assert await refusal(train(platform)) == ("training_not_enabled", "model")
    unfit: list[dict[str, Any]] = [
        {"max_replicas": 2},
        {"gpus": 2},
        {"nodes": 2},
        {"sleep_seconds": 60},
        {"follow": "tinker://run"},
    ]
    for words in unfit:
        assert (await refusal(enable(platform, **words)))[1] in ("training", *words)
    assert (await refusal(enable(platform, "always")))[1] == "training"
    await platform.import_model("all", FILES, is_global=True, **platform.tenant(platform=True))
    request = pb.PutServingRequest(model="all", min_replicas=1, engine="vllm", training="fenced")
    call = platform.inference.PutServing(request, **platform.tenant(platform=True))
    assert (await refusal(call))[1] == "training"
    await enable(platform)
    ids = {"context_ids": [1], "continuation_ids": [2]}
    uneven = pb.TrainingSample(**ids, weights=[1, 1])
    wrong: list[tuple[str, dict[str, Any]]] = [
        ("samples", {"samples": []}),
        ("samples.0.context_ids", {"samples": [pb.TrainingSample(continuation_ids=[1])]}),
        ("samples.0.continuation_ids", {"samples": [pb.TrainingSample(context_ids=[1])]}),
        ("samples.0.weights", {"samples": [pb.TrainingSample(**ids, weights=[float("nan")])]}),
        ("learning_rate", {"learning_rate": float("nan")}),
        ("optimizer", {"optimizer": "muon"}),
        ("epochs", {"epochs": 0}),
        ("max_seconds", {"max_seconds": -1}),
        ("idempotency_key", {"idempotency_key": "\x01after"}),
        ("place_steps", {"place_steps": 5}),
        ("save_steps", {"save_steps": -1}),
        ("guard.samples", {"guard": pb.TrainingGuard(every=1)}),
        ("guard.every", {"guard": pb.TrainingGuard(samples=[HELD_OUT])}),
        ("guard.samples.0.weights", {"guard": guard(samples=[uneven])}),
        ("guard.max_kl", {"guard": guard(max_kl=float("nan"))}),
        ("guard.max_loss", {"guard": guard(max_loss=-1)}),
    ]
    for param, words in wrong:
        assert (await refusal(train(platform, **words)))[1] == param
    assert await newest(platform) == []


async def test_what_others_may_use_is_not_trained(platform: Platform, east: WireAgent) -> None:
    base = await platform.import_model("base", FILES, **platform.tenant())
    await platform.models_internal.RegisterModel(
        models_pb2.RegisterModelRequest(
            id="ft:base:x", organization_id="org-of-proj-a", project_id="proj-a",
            kind=models_pb2.MODEL_KIND_FINE_TUNED, base_version_id=base.version_id,
            object_prefix="jobs/x/", manifest=manifest(FILES), job_id="ftjob-1", source="x",
        )
    )  # fmt: skip
    await enable(platform, model="ft:base:x")
    grants = GrantStore(platform.app.database)
    await grants.create(await grants.grantable("org-of-proj-a", "ft:base:x"), ["proj-b"])
    for call in (
        train(platform, model="ft:base:x"),
        train(platform, "proj-b", model="ft:base:x"),
    ):
        assert await refusal(call) == ("insufficient_permissions", "model")
    assert (await refusal(enable(platform, model="ft:base:x")))[1] == "training"


async def test_a_guard_is_handed_on_and_what_it_measured_is_told(
    platform: Platform, east: WireAgent
) -> None:
    await enable(platform, "shadow")
    made = await train(platform, guard=guard(max_kl=0.5), place_steps=2, save_steps=3)
    await serve(east)
    workload = await told(east, made.id)
    async with httpx.AsyncClient() as http:
        asked = msgspec.json.decode((await http.get(workload.engine_training.request.url)).content)
    held_out = {"context_ids": [5], "continuation_ids": [6]}
    assert asked["guard"] == {"samples": [held_out], "every": 2, "max_kl": 0.5}
    assert (asked["mode"], asked["place_steps"], asked["save_steps"]) == ("shadow", 2, 3)
    report = steps(1, 3)
    report.recent[1].held_out_loss, report.recent[1].kl, report.kept_steps = 0.7, 0.6, 0
    await east.report(
        workload,
        clusters_pb2.PHASE_FAILED,
        reason="guard_tripped",
        message="step 2",
        training=report,
    )
    failed = await state(platform, made.id, pb.ENGINE_TRAINING_STATE_FAILED)
    assert (failed.reason, failed.steps, failed.kept_steps) == ("guard_tripped", 3, 0)
    watch = platform.inference.WatchEngineTraining(
        pb.WatchEngineTrainingRequest(id=made.id), **platform.tenant()
    )
    seen = [step for progress in [one async for one in watch] for step in progress.steps]
    measured = [one.kl for one in seen if one.HasField("kl")]
    assert (len(seen), measured) == (3, [0.6])


async def test_another_project_finds_nothing(platform: Platform, east: WireAgent) -> None:
    await enable(platform)
    mine = await train(platform, idempotency_key="one")
    other = platform.tenant("proj-b")
    assert (await refusal(train(platform, "proj-b", idempotency_key="one")))[0] == "model_not_found"
    for call in (
        platform.inference.GetEngineTraining(pb.GetEngineTrainingRequest(id=mine.id), **other),
        platform.inference.CancelEngineTraining(
            pb.CancelEngineTrainingRequest(id=mine.id), **other
        ),
    ):
        assert (await refusal(call))[0] == "training_not_found"
    assert await newest(platform, "proj-b") == []


async def test_one_is_cancelled_and_one_is_lost_with_its_engine(
    platform: Platform, east: WireAgent
) -> None:
    await enable(platform)
    lost, waits = await train(platform), await train(platform)
    engine = await serve(east)
    await told(east, lost.id)
    request = pb.CancelEngineTrainingRequest(id=waits.id)
    await platform.inference.CancelEngineTraining(request, **platform.tenant())
    cancelled = await state(platform, waits.id, pb.ENGINE_TRAINING_STATE_CANCELLED)
    assert cancelled.engine_id == ""
    workload = await told(east, lost.id)
    await east.report(
        workload, clusters_pb2.PHASE_FAILED, reason="EngineEnded", message="It ended."
    )
    failed = await state(platform, lost.id, pb.ENGINE_TRAINING_STATE_FAILED)
    assert (failed.reason, failed.message) == ("EngineEnded", "It ended.")
    assert east.workloads[engine.id].desired == RUNNING


async def test_a_checkpoint_has_the_models_own_files_and_keeps_its_engine(
    platform: Platform, east: WireAgent
) -> None:
    await enable(platform)
    training = await train(platform)
    engine = await serve(east)
    await succeed(platform, east, training)
    # What it has learned is nowhere else: it stays until a checkpoint is there.
    request = pb.DeleteServingRequest(model="mine")
    await platform.inference.DeleteServing(request, **platform.tenant())

    async def asked_by_itself() -> pb.EngineTraining | None:
        found = (await newest(platform))[0]
        return found if found.is_checkpoint else None

    checkpoint = await until(asked_by_itself)
    workload = await told(east, checkpoint.id)
    (upload,) = workload.engine_training.uploads
    assert (upload.path, upload.bytes) == ("model.safetensors", len(WEIGHTS))
    assert east.workloads[engine.id].desired == RUNNING
    learned = WEIGHTS[:-4] + b"new!"
    async with httpx.AsyncClient() as http:
        (await http.put(upload.url, content=learned)).raise_for_status()
    file = models_pb2.FileUrl(path=upload.path, sha256=hashlib.sha256(learned).digest())
    said = clusters_pb2.EngineTrainingStatus(files=[file])
    await east.report(workload, clusters_pb2.PHASE_SUCCEEDED, training=said)
    saved = await state(platform, checkpoint.id, pb.ENGINE_TRAINING_STATE_SUCCEEDED)
    resolve = models_pb2.ResolveModelRequest(project_id="proj-a", id=saved.checkpoint_model)
    made = await platform.models_internal.ResolveModel(resolve)
    digests = {one.path: one.sha256 for one in made.manifest.files}
    expected = {name: hashlib.sha256(content).digest() for name, content in FILES.items()}
    assert digests == expected | {"model.safetensors": file.sha256}


async def test_a_checkpoint_with_another_header_or_digest_is_none(
    platform: Platform, east: WireAgent
) -> None:
    await enable(platform)
    await serve(east)
    for learned, digest in (
        (b"\0" * len(WEIGHTS), None),
        (WEIGHTS[:-4] + b"new!", bytes(32)),
    ):
        request = pb.CreateEngineCheckpointRequest(model="mine", suffix="x")
        made = await platform.inference.CreateEngineCheckpoint(request, **platform.tenant())
        workload = await told(east, made.id)
        (upload,) = workload.engine_training.uploads
        async with httpx.AsyncClient() as http:
            (await http.put(upload.url, content=learned)).raise_for_status()
        file = models_pb2.FileUrl(
            path=upload.path, sha256=digest or hashlib.sha256(learned).digest()
        )
        said = clusters_pb2.EngineTrainingStatus(files=[file])
        await east.report(workload, clusters_pb2.PHASE_SUCCEEDED, training=said)
        failed = await state(platform, made.id, pb.ENGINE_TRAINING_STATE_FAILED)
        assert failed.reason == "upload_mismatch"
