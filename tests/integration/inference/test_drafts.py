"""Models that guess tokens for others: who may name which, what agents are told, and their end."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from tests.integration.inference.test_inference import serving
from tests.integration.inference.test_prefetches import put as prefetch
from tests.integration.inference.test_prefetches import told
from tests.integration.models.test_models import ADAPTER, FILES, delete
from tests.support.agents.wire_agent import WireAgent
from tests.support.services.platform import Platform, manifest
from tests.support.waiting import until

from windlass.api.clusters.v1 import clusters_pb2
from windlass.api.inference.v1 import inference_pb2 as pb
from windlass.api.models.v1 import models_pb2
from windlass.core.errors import from_rpc
from windlass.models.grants.store import GrantStore

DRAFT = "arguments.draft_model"


def files(tokens: int, size: int = 0) -> dict[str, bytes]:
    """A model's, of a vocabulary of so many tokens."""
    config = json.loads(FILES["config.json"]) | {"vocab_size": size or tokens}
    vocab = {f"token-{number}": number for number in range(tokens)}
    tokenizer = {"model": {"type": "BPE", "vocab": vocab, "merges": []}}
    changed = {"config.json": config, "tokenizer.json": tokenizer}
    return FILES | {name: json.dumps(one).encode() for name, one in changed.items()}


@pytest.fixture
async def platform(database_url: str, tmp_path: Path) -> AsyncIterator[Platform]:
    async with serving(database_url, tmp_path, engine="llamacpp") as (made, _):
        await made.import_model("big", files(50), **made.tenant())
        await made.import_model("small", files(50), **made.tenant())
        yield made


async def put(
    on: Platform, model: str, draft: str, *, engine: str = "", caller: Any = None, **arguments: Any
) -> pb.Serving:
    chosen = clusters_pb2.EngineArguments(draft_model=draft, **arguments)
    request = pb.PutServingRequest(model=model, min_replicas=1, engine=engine, arguments=chosen)
    made: pb.Serving = await on.inference.PutServing(request, **(caller or on.tenant()))
    return made


async def refusal(call: Any) -> tuple[str, str, str]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    error = from_rpc(caught.value)
    return error.reason, error.param or "", error.message


async def engine(agent: WireAgent) -> clusters_pb2.EngineWorkload:
    def there() -> clusters_pb2.EngineWorkload | None:
        found = [one for one in agent.workloads.values() if one.HasField("engine")]
        return found[-1].engine if found else None

    return await until(there)


async def test_an_agent_is_told_the_files_of_both(platform: Platform) -> None:
    agent = await platform.live_cluster(engines=("llamacpp",))
    made = await put(platform, "big", "small", draft_tokens=4)
    assert (made.arguments.draft_model, made.arguments.draft_tokens) == ("small", 4)
    spec = await engine(agent)
    assert {one.path for one in spec.draft_files} == set(FILES)
    assert {one.path for one in spec.model_files} == set(FILES)
    assert spec.draft_version_id not in ("", spec.model_version_id)


async def test_a_draft_that_is_used_is_not_deleted(platform: Platform) -> None:
    await platform.live_cluster(engines=("llamacpp",))
    await put(platform, "big", "small")
    reason, _, said = await refusal(delete(platform, "small"))
    assert reason == "model_in_use"
    assert said == "The model is in use by 1 serving (big), as the draft model."
    request = pb.PutServingRequest(model="big", min_replicas=0)
    await platform.inference.PutServing(request, **platform.tenant())
    async with platform.app.database.begin() as connection:
        await connection.exec_driver_sql("DELETE FROM inference_engines")
    await delete(platform, "small")


@pytest.mark.parametrize("kind", ["builtin", "sglang"])
async def test_kinds_that_cannot_refuse_it_by_name(platform: Platform, kind: str) -> None:
    reason, param, said = await refusal(put(platform, "big", "small", engine=kind))
    assert (reason, param) == ("invalid_value", DRAFT)
    assert f"The engine '{kind}' takes no draft_model" in said


async def test_another_vocabulary_is_refused_with_the_numbers(platform: Platform) -> None:
    for name, tokens, size, kind, said in (
        ("larger", 300, 0, "", "its vocabulary has 300 tokens, that of the model 50"),
        ("padded", 50, 64, "vllm", "its vocabulary has 64 tokens, that of the model 50"),
    ):
        await platform.import_model(name, files(tokens, size), **platform.tenant())
        reason, param, message = await refusal(put(platform, "big", name, engine=kind))
        assert (reason, param) == ("invalid_value", DRAFT)
        assert message == f"{name} cannot guess for big: {said}."
    # llama.cpp takes one that is padded otherwise.
    await put(platform, "big", "padded")
    await platform.import_model("silent", FILES, **platform.tenant())
    _, param, said = await refusal(put(platform, "big", "silent"))
    assert (param, "silent cannot be compared" in said) == (DRAFT, True)


async def test_what_is_no_smaller_model_cannot_guess(platform: Platform) -> None:
    base = await platform.import_model("base", files(50), **platform.tenant())
    await platform.register_adapter("ft:base:a", base, ADAPTER)
    for name, said in (
        ("big", "it is the model itself"),
        ("ft:base:a", "it has no complete weights"),
    ):
        _, param, message = await refusal(put(platform, "big", name))
        assert param == DRAFT
        assert message == f"{name} cannot be a draft: {said}."
    reason, param, _ = await refusal(put(platform, "big", "nowhere"))
    assert (reason, param) == ("model_not_found", DRAFT)
    # How engines of an adapter run, its base says.
    reason, param, _ = await refusal(put(platform, "ft:base:a", "small"))
    assert param == "arguments"


async def test_a_draft_is_of_the_same_project_or_for_everyone(platform: Platform) -> None:
    other = platform.tenant("proj-b")
    await platform.import_model("theirs", files(50), **other)
    for name in ("theirs", "nowhere"):
        reason, param, said = await refusal(put(platform, "big", name))
        assert (reason, param) == ("model_not_found", DRAFT)
        assert said.startswith(f"The model '{name}' does not exist")
    everyone = platform.tenant(platform=True)
    await platform.import_model("shared", files(50), is_global=True, **everyone)
    await put(platform, "big", "shared")
    # Whose serving it is, is nobody's business.
    _, _, said = await refusal(delete(platform, "shared", **everyone))
    assert said == "The model is in use by 1 serving (big), as the draft model."
    # One for everyone needs one for everyone, whatever the caller's own are called.
    await platform.import_model("large", files(50), is_global=True, **everyone)
    reason, param, _ = await refusal(put(platform, "large", "small", caller=everyone))
    assert (reason, param) == ("model_not_found", DRAFT)
    await put(platform, "large", "shared", caller=everyone)


async def test_what_another_project_has_granted_is_no_draft(platform: Platform) -> None:
    """A grant may be taken back within seconds, and its files would stay with the engine."""
    theirs = await platform.import_model("base-b", files(50), **platform.tenant("proj-b"))
    await platform.models_internal.RegisterModel(
        models_pb2.RegisterModelRequest(
            id="ft:base-b:x", organization_id="org-of-proj-b", project_id="proj-b",
            kind=models_pb2.MODEL_KIND_FINE_TUNED, base_version_id=theirs.version_id,
            object_prefix="jobs/x/", manifest=manifest(FILES), job_id="ftjob-1", source="x",
        )
    )  # fmt: skip
    grants = GrantStore(platform.app.database)
    await grants.create(await grants.grantable("org-of-proj-b", "ft:base-b:x"), ["proj-a"])
    _, param, said = await refusal(put(platform, "big", "ft:base-b:x"))
    assert param == DRAFT
    assert said.startswith("ft:base-b:x belongs to another project")


async def test_a_prefetch_brings_the_draft_too(platform: Platform) -> None:
    agent = await platform.live_cluster(engines=("llamacpp",), keeps_models=True)
    await put(platform, "big", "small")
    (made,) = await prefetch(platform, "big")
    assert made.bytes == 2 * sum(map(len, files(50).values()))
    spec = (await told(agent, made.id, 1)).prefetch
    assert {one.path for one in spec.draft_files} == set(FILES)
    assert spec.draft_version_id not in ("", spec.model_version_id)
