"""Requests that are refused at once, with the field at fault."""

import json
import struct
from typing import Any

import grpc
import pytest
from tests.support.factories.feather import FEATHER
from tests.support.factories.job_documents import document
from tests.support.services.jobs_plane import PREFERENCE, JobsPlane, ScriptedAgent, Tenant

from windlass.api.jobs.v1 import jobs_pb2 as pb
from windlass.modelfiles.presets import shipped

NO_TENSORS = b"GGUF" + struct.pack("<IQQ", 3, 0, 0)
NESTED = b"[" * 5000 + b"]" * 5000


async def refusal(tenant: Tenant, **fields: Any) -> tuple[str, str]:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await tenant.create(**fields)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT, refused.value.details()
    pairs = dict(refused.value.trailing_metadata() or ())
    return str(pairs["windlass-reason"]), str(pairs.get("windlass-param", ""))


def grader(**fields: Any) -> bytes:
    check = {
        "type": "string_check",
        "name": "exact",
        "operation": "eq",
        "input": "{{sample.output_text}}",
        "reference": "{{item.answer}}",
    }
    return json.dumps({**check, **fields}).encode()


JUDGE = json.dumps(
    {
        "type": "score_model",
        "name": "judge",
        "model": "tiny",
        "input": [{"role": "user", "content": "{{sample.output_text}}"}],
    }
).encode()
AT = "method.supervised.hyperparameters"
CASES: list[tuple[dict[str, Any], str]] = [
    ({"suffix": "../../etc"}, "suffix"),
    ({"suffix": "a/b"}, "suffix"),
    ({"suffix": "a:b"}, "suffix"),
    ({"suffix": ".."}, "suffix"),
    ({"suffix": "a..b"}, "suffix"),
    ({"suffix": "-rf"}, "suffix"),
    ({"suffix": "x" * 65}, "suffix"),
    ({"suffix": "näme"}, "suffix"),
    ({"seed": -1}, "seed"),
    ({"seed": 2**31}, "seed"),
    ({"method": "imitation"}, "method.type"),
    ({"method": "reinforcement"}, "method.reinforcement.grader"),
    ({"method": "reinforcement", "grader": b"[]"}, "method.reinforcement.grader"),
    ({"method": "reinforcement", "grader": b'{"a": "\\u0000"}'}, "method.reinforcement.grader.a"),
    ({"method": "reinforcement", "grader": b'{"type": "python", "name": "a", "source": "b"}'},
     "method.reinforcement.grader.source"),
    ({"method": "reinforcement", "grader": grader(operation="regex")},
     "method.reinforcement.grader.operation"),
    ({"method": "reinforcement", "grader": grader(input="{{answer}}")},
     "method.reinforcement.grader.input"),
    ({"method": "reinforcement", "grader": JUDGE}, "method.reinforcement.grader"),
    ({"extra": b'{"method": "rloo"}'}, "windlass.method"),
    ({"method": "dpo", "grader": b'{"type": "python"}'}, "method"),
    ({"model": ""}, "model"),
    ({"model": "a\0b"}, "model"),
    ({"training_file": ""}, "training_file"),
    ({"training_file": "file-\0"}, "training_file"),
    ({"validation_file": "file-unknown"}, "validation_file"),
    ({"metadata": {f"k{i}": "v" for i in range(17)}}, "metadata"),
    ({"metadata": {"k" * 65: "v"}}, "metadata." + "k" * 65),
    ({"metadata": {"k": "v" * 513}}, "metadata.k"),
    ({"metadata": {"": "v"}}, "metadata"),
    ({"metadata": {"k": "a\0b"}}, "metadata.k"),
    ({"request_id": "x" * 129}, "request_id"),
    ({"hyperparameters": b"{"}, ""),
    ({"hyperparameters": b"[]"}, AT),
    ({"hyperparameters": b"\xff"}, ""),
    ({"hyperparameters": b'{"n_epochs": NaN}'}, f"{AT}.n_epochs"),
    ({"hyperparameters": b'{"n_epochs": 1e999}'}, f"{AT}.n_epochs"),
    ({"hyperparameters": b'{"n_epochs": "\\u0000"}'}, f"{AT}.n_epochs"),
    ({"hyperparameters": b'{"n_epochs": "\\ud800"}'}, f"{AT}.n_epochs"),
    ({"hyperparameters": b'{"a": ' + NESTED + b"}"}, f"{AT}.a"),
    ({"extra": b'{"config": {"a": ' + NESTED + b"}}"}, ""),
    ({"extra": b'{"config": {"a": "' + b"x" * 70_000 + b'"}}'}, ""),
    ({"extra": b'{"config": {"a": "\\ud800"}}'}, "windlass.config.a"),
    ({"method": "", "hyperparameters": b'{"n_epochs": 0}'}, "hyperparameters.n_epochs"),
    ({"method": "", "hyperparameters": b'{"beta": 1}'}, "hyperparameters.beta"),
    ({"hyperparameters": b'{"n_epochs": 0}'}, "method.supervised.hyperparameters.n_epochs"),
    ({"hyperparameters": b'{"n_epochs": "many"}'},
     "method.supervised.hyperparameters.n_epochs"),
    ({"hyperparameters": b'{"beta": 0.1}'}, "method.supervised.hyperparameters.beta"),
    ({"extra": b'{"command": ["sh"]}'}, "windlass.command"),
    ({"extra": b'{"method": "ppo"}'}, "windlass.method"),
    ({"extra": b'{"method": "dpo"}'}, "windlass.method"),
    ({"extra": b'{"method": ["kto"]}'}, "windlass.method"),
    ({"extra": b'{"method": "kto"}', "method": "dpo"}, "windlass.method"),
    ({"extra": b'{"backend": "nope"}'}, "windlass.backend"),
    ({"extra": b'{"backend": "../trl"}'}, "windlass.backend"),
    ({"extra": b'{"config": {"output_dir": "/etc"}}'}, "windlass.config.output_dir"),
    ({"extra": b'{"resources": {"gpus": -1}}'}, "windlass.resources.gpus"),
    ({"extra": b'{"resources": {"gpus": true}}'}, "windlass.resources.gpus"),
    ({"extra": b'{"resources": {"disks": 1}}'}, "windlass.resources.disks"),
    ({"extra": b'{"resources": {"nodes": 65}}'}, "windlass.resources.nodes"),
    ({"extra": b'{"resources": {"nodes": 2}, "config": {"num_nodes": 3}}'},
     "windlass.resources.nodes"),
    ({"extra": b'{"resources": {"processes": 65}}'}, "windlass.resources.processes"),
    ({"extra": b'{"resources": {"processes": 2, "gpus": 4}}'}, "windlass.resources.processes"),
    ({"extra": b'{"config": {"sharding": "fsdp1"}}'}, "windlass.config.sharding"),
    ({"extra": b'{"config": {"sharding": "fsdp2"}}'}, "windlass.config.sharding"),
    ({"integrations": b'{"type": "wandb"}'}, "integrations"),
    ({"integrations": b'[{"type": "comet"}]'}, "integrations.0.type"),
    ({"integrations": b'[{"type": "mlflow"}]'}, "integrations.0.mlflow"),
    ({"integrations": b'[{"type": "wandb", "wandb": {}}]'}, "integrations.0.wandb.project"),
    ({"integrations": b'[{"type": "wandb", "wandb": {"project": "p", "api_key": "s"}}]'},
     "integrations.0.wandb.api_key"),
    ({"integrations": b'[{"type": "wandb", "wandb": {"project": "../p"}}]'},
     "integrations.0.wandb.project"),
    ({"integrations": b'[{"type": "wandb", "wandb": {"project": "p"}}]'}, "integrations.0.wandb"),
]  # fmt: skip


async def test_a_bad_field_is_named(tenant: Tenant) -> None:
    file = (await tenant.put_file()).id
    for fields, param in CASES:
        named = (await refusal(tenant, **{"training_file": file, **fields}))[1]
        assert named == param, fields
    assert not (await tenant.call("ListJobs", pb.ListJobsRequest())).jobs


async def test_files_must_fit(tenant: Tenant) -> None:
    preference = (json.dumps(PREFERENCE) + "\n").encode() * 20
    batch = await tenant.put_file(b"{}\n", purpose="user_data")
    assert await refusal(tenant, training_file=batch.id) == (
        "invalid_file_purpose", "training_file",
    )  # fmt: skip
    assert await refusal(tenant, training_file="file-unknown") == (
        "file_not_found", "training_file",
    )  # fmt: skip
    pairs = await tenant.put_file(preference)
    assert await refusal(tenant, training_file=pairs.id) == (
        "invalid_training_file", "training_file",
    )  # fmt: skip
    chat = await tenant.put_file()
    assert (await refusal(tenant, training_file=chat.id, method="dpo"))[1] == "training_file"
    assert await refusal(tenant, training_file=chat.id, validation_file=pairs.id) == (
        "invalid_validation_file", "validation_file",
    )  # fmt: skip
    job = await tenant.create(
        training_file=pairs.id, method="dpo", hyperparameters=b'{"beta": 0.2}'
    )
    assert json.loads(job.config)["beta"] == 0.2


async def test_reinforcement_keeps_its_grader_and_wants_files_of_its_own(tenant: Tenant) -> None:
    asked = {"messages": [{"role": "user", "content": "2 + 2?"}], "answer": "4"}
    prompts = await tenant.put_file((json.dumps(asked) + "\n").encode() * 32)
    chat = await tenant.put_file()
    given: dict[str, Any] = {"method": "reinforcement", "grader": grader()}
    assert await refusal(tenant, training_file=chat.id, **given) == (
        "invalid_training_file", "training_file",
    )  # fmt: skip
    assert await refusal(tenant, training_file=prompts.id) == (
        "invalid_training_file", "training_file",
    )  # fmt: skip
    for fields, param in (
        ({"hyperparameters": b'{"reasoning_effort": "high"}'},
         "method.reinforcement.hyperparameters.reasoning_effort"),
        ({"hyperparameters": b'{"eval_samples": 1}', "extra": b'{"method": "rloo"}'},
         "method.reinforcement.hyperparameters.eval_samples"),
        ({"extra": b'{"config": {"max_length": 64}}'}, "windlass.config.max_length"),
    ):  # fmt: skip
        assert (await refusal(tenant, training_file=prompts.id, **given, **fields))[1] == param
    hyperparameters = b'{"batch_size": 4, "compute_multiplier": 0.5, "eval_interval": 7}'
    for extra, trainer in ((b"", "grpo"), (b'{"method": "rloo"}', "rloo")):
        job = await tenant.create(
            training_file=prompts.id, hyperparameters=hyperparameters, extra=extra, **given
        )
        assert json.loads(job.grader) == json.loads(grader())
        config = json.loads(job.config)
        assert config["grader"] == json.loads(grader())
        assert (config["trainer_type"], config["num_generations"]) == (trainer, 4)
        assert config["batch_size"] * config["gradient_accumulation_steps"] == 16
        assert config["eval_steps"] == 7


async def test_a_batch_is_shared_out_among_nodes_and_their_processes(tenant: Tenant) -> None:
    job = await tenant.create(
        hyperparameters=b'{"batch_size": 16}',
        extra=b'{"resources": {"nodes": 2, "processes": 4}}',
    )
    config = json.loads(job.config)
    assert config["num_nodes"] == job.num_nodes == 2
    assert job.resources_per_node.processes == 4
    assert config["batch_size"] * config["gradient_accumulation_steps"] == 2


async def test_a_good_request_keeps_what_it_asked_for(tenant: Tenant) -> None:
    wandb = [{"type": "wandb", "wandb": {"project": "p", "tags": ["a"]}}]
    await tenant.put_secret("wandb")
    job = await tenant.create(
        suffix="My_model-1.0",
        hyperparameters=b'{"n_epochs": "auto", "batch_size": 2}',
        integrations=json.dumps(wandb).encode(),
        extra=b'{"config": {"rank": 4}, "resources": {"cpus": 2}}',
        metadata={"k": "v" * 512},
    )
    shown = json.loads(job.hyperparameters)
    assert shown == {"n_epochs": 20, "batch_size": 2, "learning_rate_multiplier": 1}
    assert json.loads(job.integrations) == wandb
    peft = json.loads(job.config)["peft"]
    # Of the preset of the model's family, which an import has found.
    assert (peft["r"], peft["target_modules"]) == (4, list(shipped()["llama"].lora_targets))
    assert job.resources_per_node.cpus == 2
    assert 0 <= job.seed < 2**31


async def test_an_adapter_of_an_unknown_form_is_not_continued(
    plane: JobsPlane, tenant: Tenant, agent: ScriptedAgent
) -> None:
    job = await tenant.create()
    await agent.wants(job.id)
    run = agent.run(job.id)
    await run.upload("FINAL", 1)
    await run.finish()
    done = await tenant.wait_for(job.id, "SUCCEEDED")
    assert await refusal(tenant, model=done.fine_tuned_model) == ("model_not_tunable", "model")


async def test_a_gguf_file_is_not_trained(tenant: Tenant) -> None:
    files = {name: content for name, content in FEATHER.items() if name != "model.safetensors"}
    await tenant.put_model("packed", {**files, "model.gguf": NO_TENSORS})
    assert await refusal(tenant, model="packed") == ("model_not_tunable", "model")


async def test_a_job_needs_a_project(tenant: Tenant) -> None:
    nobody = Tenant(tenant.plane, tenant.organization, "")
    for method, request in (
        ("ListJobs", pb.ListJobsRequest()),
        ("CreateJob", pb.CreateJobRequest(document=document(model="tiny", training_file="file-1"))),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await nobody.call(method, request)
        assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED


async def test_reports_are_bounded(tenant: Tenant, agent: ScriptedAgent) -> None:
    from windlass.api.runner.v1 import runner_pb2

    job = await tenant.create()
    await agent.wants(job.id)
    run = agent.run(job.id)
    long = "x" * 100_000 + "\0"
    await run.report(runner_pb2.RunEvent(level=runner_pb2.LEVEL_WARN, message=long))
    await run.step(1, loss=float("nan"))
    messages = await tenant.messages(job.id)
    assert max(map(len, messages)) == 2000
    events = [runner_pb2.RunEvent(seq=seq, message="m") for seq in range(3, 1100)]
    for bad in (events, [runner_pb2.RunEvent(seq=-5, message="m")]):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await run.report(*bad)
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
