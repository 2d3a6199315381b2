"""Jobs whose model was made by a job: what they are given, what they need, and what they leave."""

import json
from typing import Any

import grpc
import pytest
from tests.integration.jobs.test_bad_input import refusal
from tests.support.services.jobs_plane import JobsPlane, ScriptedAgent, Tenant
from tests.support.waiting import until

from windlass.api.jobs.v1 import jobs_pb2 as pb
from windlass.api.jobs.v1 import jobs_pb2_grpc as rpc
from windlass.api.models.v1 import models_pb2, models_pb2_grpc

SHAPE = {
    "peft_type": "LORA",
    "r": 8,
    "lora_alpha": 24,
    "target_modules": ["q_proj", "v_proj"],
    "use_rslora": True,
    "base_model_name_or_path": "tiny",
}
ADAPTER = {
    "adapter_config.json": json.dumps(SHAPE).encode(),
    "adapter_model.safetensors": b"a first adapter",
}
COMPLETE = {"config.json": b"{}", "model.safetensors": b"complete weights"}


async def made(tenant: Tenant, agent: ScriptedAgent, **fields: Any) -> str:
    """The name of the model that a job makes, an adapter unless its `content` is another."""
    content = fields.pop("content", ADAPTER)
    job = await tenant.create(**fields)
    await agent.wants(job.id)
    run = agent.run(job.id)
    await run.upload("FINAL", 1, content)
    await run.finish()
    return (await tenant.wait_for(job.id, "SUCCEEDED")).fine_tuned_model


def extra(**asked: Any) -> dict[str, bytes]:
    return {"extra": json.dumps(asked).encode()}


async def model(tenant: Tenant, name: str) -> models_pb2.Model:
    request = models_pb2.GetModelRequest(id=name)
    stub = models_pb2_grpc.ModelsServiceStub(tenant.plane.channel)
    return await stub.GetModel(request, metadata=tenant.metadata)


async def delete(tenant: Tenant, name: str) -> None:
    request = models_pb2.DeleteModelRequest(id=name)
    stub = models_pb2_grpc.ModelsServiceStub(tenant.plane.channel)
    await stub.DeleteModel(request, metadata=tenant.metadata)


async def test_a_job_is_given_the_adapter_beside_the_base_and_makes_one_of_the_base(
    tenant: Tenant, agent: ScriptedAgent
) -> None:
    first = await made(tenant, agent)
    job = await tenant.create(model=first, suffix="more")
    assert job.model == first
    config = json.loads(job.config)
    assert config["from_adapter"] is True
    peft = {"r": 8, "alpha": 24, "target_modules": ["q_proj", "v_proj"], "use_rslora": True}
    assert config["peft"].items() >= peft.items()

    await agent.wants(job.id)
    run = agent.run(job.id)
    assignment = await run.assignment()
    assert assignment.base_model == "tiny"
    assert {file.path for file in assignment.model_files} >= {"config.json", "model.safetensors"}
    (companion,) = assignment.companions
    assert companion.role == "adapter"
    assert {file.path for file in companion.files} == set(ADAPTER)

    with pytest.raises(grpc.aio.AioRpcError, match=r"1 running job"):
        await delete(tenant, first)
    await run.upload("FINAL", 2, {**ADAPTER, "adapter_model.safetensors": b"a second adapter"})
    await run.finish()
    second = (await tenant.wait_for(job.id, "SUCCEEDED")).fine_tuned_model
    assert second.startswith("ft:tiny:acme1:more:")
    # It is whole by itself: nothing uses the first any more.
    stub = tenant.plane.app.clients.stub(rpc.JobsInternalServiceStub)
    version = (await model(tenant, first)).version_id
    assert not (await stub.FindUses(pb.FindUsesRequest(model_version_id=version))).job_ids
    found = await model(tenant, second)
    assert (found.kind, found.base_model) == (models_pb2.MODEL_KIND_ADAPTER, "tiny")
    assert found.parent == first


async def test_a_job_goes_on_from_a_checkpoint_of_one_that_still_trains(
    tenant: Tenant, agent: ScriptedAgent
) -> None:
    job = await tenant.create(**extra(checkpoints={"keep_last": 1, "keep_best": 1}))
    await agent.wants(job.id)
    run = agent.run(job.id)
    await run.upload("CHECKPOINT", 1, ADAPTER)
    name = await _checkpoint(tenant, job.id)
    later = await tenant.create(model=name)
    await agent.wants(later.id)
    # The next one would take its place, if nothing used it.
    better = {**ADAPTER, "adapter_model.safetensors": b"better"}
    await run.upload("CHECKPOINT", 2, better)
    await run.upload("FINAL", 2, better)
    await run.finish()
    await tenant.wait_for(job.id, "SUCCEEDED")
    (companion,) = (await agent.run(later.id).assignment()).companions
    assert {file.path for file in companion.files} == set(ADAPTER)


async def _checkpoint(tenant: Tenant, job_id: str) -> str:
    async def listed() -> str:
        request = pb.ListCheckpointsRequest(job_id=job_id)
        page = await tenant.call("ListCheckpoints", request)
        names = [one.fine_tuned_model_checkpoint for one in page.checkpoints]
        try:
            return (await model(tenant, names[0])).id if names else ""
        except grpc.aio.AioRpcError:
            return ""

    return await until(listed)


async def test_complete_weights_are_a_base_like_any_other(
    tenant: Tenant, agent: ScriptedAgent
) -> None:
    whole = await made(tenant, agent, content=COMPLETE)
    adapter = await made(tenant, agent, model=whole)
    found = await model(tenant, adapter)
    assert (found.base_model, found.parent) == (whole, whole)
    again = await tenant.create(model=adapter)
    await agent.wants(again.id)
    assignment = await agent.run(again.id).assignment()
    assert assignment.base_model == whole
    assert assignment.model_name.startswith("ft:tiny:acme1:")
    with pytest.raises(grpc.aio.AioRpcError, match=r"1 adapter"):
        await delete(tenant, whole)


async def test_an_adapter_that_cannot_hold_the_first_is_refused(
    tenant: Tenant, agent: ScriptedAgent
) -> None:
    first = await made(tenant, agent)
    configs: tuple[dict[str, Any], ...] = (
        {"rank": 4}, {"use_dora": True}, {"target_modules": ["q_proj"]}, {"lora": False}
    )  # fmt: skip
    for config in configs:
        (name,) = config
        found = await refusal(tenant, model=first, **extra(config=config))
        assert found[1] == f"windlass.config.{name}"


async def test_an_adapter_may_grow(tenant: Tenant, agent: ScriptedAgent) -> None:
    first = await made(tenant, agent)
    asked = {"rank": 16, "target_modules": "all-linear", "use_rslora": False}
    peft = json.loads((await tenant.create(model=first, **extra(config=asked))).config)["peft"]
    wanted = {"r": 16, "alpha": 32, "target_modules": "all-linear", "use_rslora": False}
    assert peft.items() >= wanted.items()


async def test_documents_say_whether_training_begins_with_an_adapter(
    tenant: Tenant, agent: ScriptedAgent
) -> None:
    first = await made(tenant, agent)
    document = json.loads((await tenant.create(model=first)).config)
    whole = extra(document=document, backend="trl")
    job = await tenant.create(model=first, method="", **whole)
    assert json.loads(job.config) == document
    at = "windlass.document.from_adapter"
    assert (await refusal(tenant, method="", **whole))[1] == at
    del document["from_adapter"]
    whole = extra(document=document, backend="trl")
    assert (await refusal(tenant, model=first, method="", **whole))[1] == at


async def test_a_backend_that_cannot_go_on_from_an_adapter_says_so(
    tenant: Tenant, agent: ScriptedAgent
) -> None:
    first = await made(tenant, agent)
    with pytest.raises(grpc.aio.AioRpcError, match="Use the backend 'trl'"):
        await tenant.create(model=first, **extra(backend="torchtune"))
    fields = extra(backend="torchtune")
    assert await refusal(tenant, model=first, **fields) == ("model_not_tunable", "model")


async def test_another_projects_model_looks_as_if_it_never_was(
    plane: JobsPlane, tenant: Tenant, agent: ScriptedAgent
) -> None:
    other = await plane.tenant("proj_b", "org-Other")
    theirs = await made(other, agent)
    assert await refusal(tenant, model=theirs) == ("model_not_found", "model")
    never = await refusal(tenant, model=theirs[:-1] + "_")
    assert await refusal(tenant, model=theirs) == never
