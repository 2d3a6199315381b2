"""Methods beyond OpenAI's: chosen by `windlass.method`, with files and models that fit them."""

import json
from typing import Any

import grpc
import pytest
from tests.integration.jobs.test_bad_input import refusal
from tests.support.services.jobs_plane import CHAT, PREFERENCE, JobsPlane, ScriptedAgent, Tenant

from windlass.api.models.v1 import models_pb2, models_pb2_grpc

LABELLED = {
    "prompt": [{"role": "user", "content": "Hello"}],
    "completion": [{"role": "assistant", "content": "Good day."}],
    "label": True,
}
TEACHER = "windlass.config.teacher"


async def put(tenant: Tenant, row: dict[str, Any]) -> str:
    return (await tenant.put_file((json.dumps(row) + "\n").encode() * 20)).id


def extra(method: str, **config: Any) -> dict[str, Any]:
    return {"method": "", "extra": json.dumps({"method": method, "config": config}).encode()}


async def test_a_method_is_chosen_with_its_settings(tenant: Tenant) -> None:
    labelled = await put(tenant, LABELLED)
    asked = extra("kto", beta=0.3, desirable_weight=1.5)
    job = await tenant.create(training_file=labelled, hyperparameters=b'{"n_epochs": 2}', **asked)
    config = json.loads(job.config)
    assert (job.method, config["trainer_type"], config["epochs"]) == ("kto", "kto", 2)
    assert (config["beta"], config["desirable_weight"]) == (0.3, 1.5)


async def test_a_setting_that_does_not_fit_is_named(tenant: Tenant) -> None:
    labelled = await put(tenant, LABELLED)
    for method, config, param in (
        ("kto", {"packing": True}, "windlass.config.packing"),
        ("kto", {"beta": "high"}, "windlass.config.beta"),
        ("ppo", {}, "windlass.method"),
        ("grpo", {}, "windlass.method"),
    ):
        fields = extra(method, **config)
        assert (await refusal(tenant, training_file=labelled, **fields))[1] == param
    one = {"hyperparameters": b'{"batch_size": 1}', **extra("kto")}
    assert (await refusal(tenant, training_file=labelled, **one))[1] == "hyperparameters.batch_size"


async def test_files_fit_their_method(tenant: Tenant) -> None:
    for method, row, takes in (
        ("kto", LABELLED, True),
        ("kto", PREFERENCE, True),
        ("kto", CHAT, False),
        ("orpo", PREFERENCE, True),
        ("orpo", LABELLED, False),
        ("reward", PREFERENCE, True),
        ("reward", CHAT, False),
        ("supervised", LABELLED, False),
    ):
        fields = {} if method == "supervised" else extra(method)
        fields["training_file"] = await put(tenant, row)
        if takes:
            assert (await tenant.create(**fields)).method == method
        else:
            found = await refusal(tenant, **fields)
            assert found == ("invalid_training_file", "training_file"), (method, row)


async def test_a_teacher_comes_with_the_assignment_and_stays(
    tenant: Tenant, agent: ScriptedAgent
) -> None:
    await tenant.put_model("large")
    job = await tenant.create(**extra("distillation", teacher="large"))
    await agent.wants(job.id)
    (companion,) = (await agent.run(job.id).assignment()).companions
    assert companion.role == "teacher"
    assert {file.path for file in companion.files} >= {"config.json", "model.safetensors"}
    assert all(file.url for file in companion.files)
    models = models_pb2_grpc.ModelsServiceStub(tenant.plane.channel)
    delete = models_pb2.DeleteModelRequest(id="large")
    with pytest.raises(grpc.aio.AioRpcError, match="1 running job"):
        await models.DeleteModel(delete, metadata=tenant.metadata)


async def test_a_reward_model_is_named_as_one_and_is_no_base(
    tenant: Tenant, agent: ScriptedAgent
) -> None:
    pairs = await put(tenant, PREFERENCE)
    job = await tenant.create(training_file=pairs, **extra("reward"))
    await agent.wants(job.id)
    run = agent.run(job.id)
    await run.upload("FINAL", 1)
    await run.finish()
    name = (await tenant.wait_for(job.id, "SUCCEEDED")).fine_tuned_model
    models = models_pb2_grpc.ModelsServiceStub(tenant.plane.channel)
    made = await models.GetModel(models_pb2.GetModelRequest(id=name), metadata=tenant.metadata)
    assert made.task == models_pb2.MODEL_TASK_SCORING
    assert await refusal(tenant, model=name) == ("model_not_tunable", "model")
    fields = extra("distillation", teacher=name)
    assert await refusal(tenant, **fields) == ("model_not_tunable", TEACHER)


async def test_a_teacher_is_a_complete_model_of_the_project(
    plane: JobsPlane, tenant: Tenant, agent: ScriptedAgent
) -> None:
    assert (await refusal(tenant, **extra("distillation")))[1] == TEACHER
    other = await plane.tenant("proj_b", "org-Other")
    await other.put_model("theirs")
    for name in ("nothing", "theirs", "../large"):
        fields = extra("distillation", teacher=name)
        assert await refusal(tenant, **fields) == ("model_not_found", TEACHER)
    job = await tenant.create()
    await agent.wants(job.id)
    run = agent.run(job.id)
    await run.upload("FINAL", 1)
    await run.finish()
    adapter = (await tenant.wait_for(job.id, "SUCCEEDED")).fine_tuned_model
    fields = extra("distillation", teacher=adapter)
    assert await refusal(tenant, **fields) == ("model_not_complete", TEACHER)
