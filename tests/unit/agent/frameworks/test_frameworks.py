"""Completion of TrainJobs by the framework label of their runtime."""

from dataclasses import replace
from typing import Any

import pytest

from windlass_agent.frameworks import TrainerSpec, TrainingRuntime, complete, refusals
from windlass_agent.kube.errors import Object

PATHS = ["output_dir=/workspace/output", "tokenizer.path=/workspace/model/tokenizer.model"]
TORCHTUNE = TrainingRuntime(
    name="anything-llama3.2-1b",
    framework="torchtune",
    command=("tune", "run", "full_finetune_distributed", "--config", "x", *PATHS, "epochs=1"),
    resources={"limits": {"nvidia.com/gpu": 1}},
)
PLACES = ["--model_name_or_path", "/m", "--dataset_name", "/d", "--output_dir", "/o"]
TRL = TrainingRuntime(
    name="trl-llama3.2-1b",
    framework="trl",
    annotations={"windlass.dev/trl-version": "1.16.0"},
    command=("torchrun", "-m", "trl.scripts.sft"),
    args=(*PLACES, "--report_to", "none"),
)
LORA = "model.lora_attn_modules=[q_proj]"
RENDEZVOUS = ["JOBSET_NAME", "MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK"]


def completed(runtime: TrainingRuntime, **fields: Any) -> Any:
    once = complete(TrainerSpec(fields), runtime)
    # What is complete stays as it is: an update sends it again.
    assert complete(once, runtime) == once
    return once.fields


def refused(runtime: TrainingRuntime, **fields: Any) -> list[tuple[str, str]]:
    found = [(one.field, one.message) for one in refusals(TrainerSpec(fields), runtime)]
    if found:
        # The one who wrote it sees what he wrote.
        assert complete(TrainerSpec(fields), runtime).fields == fields
    return found


def test_a_runtime_is_read_as_the_api_serves_it() -> None:
    container = {
        "name": "node",
        "command": ["tune", "run"],
        "args": ["a=1"],
        "env": [{"name": "HOME", "value": "/tmp"}],
        "resources": {"requests": {"cpu": "1500m"}},
    }
    marks = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    job = {
        "name": "workers",
        "template": {
            "metadata": {"labels": marks},
            "spec": {"template": {"spec": {"containers": [{"name": "sidecar"}, container]}}},
        },
    }
    image = {"name": "model-initializer", "image": "acme/model-initializer:1"}
    fetching = {
        "name": "model-initializer",
        "template": {"spec": {"template": {"spec": {"containers": [image]}}}},
    }
    item: Object = {
        "metadata": {"name": "r", "labels": {"trainer.kubeflow.org/framework": "torchtune"}},
        "spec": {
            "mlPolicy": {"numNodes": 3, "torch": {}},
            "template": {"spec": {"replicatedJobs": [{"name": "other"}, fetching, job]}},
        },
    }
    runtime = TrainingRuntime.of(item)
    assert (runtime.framework, runtime.is_torch, runtime.nodes) == ("torchtune", True, 3)
    assert (runtime.command, runtime.args) == (("tune", "run"), ("a=1",))
    assert runtime.variables == {"HOME"}
    assert runtime.initializers == {"dataset": "", "model": "acme/model-initializer:1"}
    place = TrainerSpec({"numNodes": 2}).placement(runtime)
    assert (place.nodes, place.processes, place.gpus, place.cpus) == (2, None, 0, 2)
    assert TrainingRuntime.of(
        {"metadata": {"name": "r"}, "spec": {"mlPolicy": {"mpi": {}}}}
    ) == TrainingRuntime(name="r", is_torch=False, initializers={"dataset": "", "model": ""})


@pytest.mark.parametrize("framework", ["", "torch", "deepspeed", "of-tomorrow"])
def test_an_unknown_framework_is_torchruns_own_affair(framework: str) -> None:
    runtime = TrainingRuntime(name="torch-distributed", framework=framework)
    given = {"command": ["torchrun", "train.py"], "args": ["--max_seq_length", "8"]}
    assert completed(runtime, **given) == given
    assert refused(runtime, **given) == []
    # Kubeflow sets PET_* for a TrainJob with a trainer alone.
    launched = replace(runtime, command=("torchrun", "train.py"))
    assert complete(TrainerSpec(None), launched) == TrainerSpec({})


@pytest.mark.parametrize(
    "command",
    [
        ["/opt/venv/bin/torchrun", "train.py"],
        ["python3.11", "-m", "torch.distributed.run", "train.py"],
        ["accelerate", "launch", "train.py"],
    ],
)
def test_a_launcher_tells_its_processes_where_the_others_are(command: list[str]) -> None:
    assert completed(TrainingRuntime(name="x"), command=command, numNodes=2) == {
        "command": command,
        "numNodes": 2,
    }


@pytest.mark.parametrize(
    "command", [["python", "train.py"], ["python", "-m", "train"], ["sh", "-c", "x"], []]
)
def test_without_a_launcher_a_process_is_told(command: list[str]) -> None:
    runtime = TrainingRuntime(name="x", framework="torch", nodes=3)
    mine = [{"name": "MASTER_PORT", "value": "1234"}]
    env = completed(runtime, command=command, env=mine)["env"]
    found = {one["name"]: one.get("value") for one in env}
    # Kubernetes puts into a variable those before it.
    assert [one["name"] for one in env] == [
        "MASTER_PORT",
        *(name for name in RENDEZVOUS if name != "MASTER_PORT"),
    ]
    assert found["MASTER_PORT"] == "1234"
    assert found["MASTER_ADDR"] == "$(JOBSET_NAME)-node-0-0.$(JOBSET_NAME)"
    assert found["WORLD_SIZE"] == "3"
    assert env[-1]["valueFrom"]["fieldRef"]["fieldPath"].endswith("job-completion-index']")
    # What the runtime sets, it knows better.
    knows = replace(runtime, variables=frozenset(RENDEZVOUS))
    assert completed(knows, command=command) == {"command": command}


def test_other_policies_than_torch_are_left_alone() -> None:
    runtime = TrainingRuntime(name="mpi", framework="trl", is_torch=False)
    env = [{"name": "PET_NNODES", "value": "2"}]
    assert complete(TrainerSpec(None), runtime) == TrainerSpec(None)
    assert not list(refusals(TrainerSpec({"env": env}), runtime))


@pytest.mark.parametrize("runtime", [TRL, TORCHTUNE, TrainingRuntime(name="x")])
def test_what_kubeflow_sets_nobody_else_does(runtime: TrainingRuntime) -> None:
    env = [{"name": "PET_NODE_RANK", "value": "0"}, {"name": "MINE", "value": "1"}]
    ((field, message),) = [
        (one.field, one.message) for one in refusals(TrainerSpec({"env": env}), runtime)
    ]
    assert field == "spec.trainer.env"
    assert "PET_NODE_RANK" in message
    assert "MINE" not in message


@pytest.mark.parametrize(
    ("fields", "start"),
    [
        ({}, ["full_finetune_single_device", "llama3_2/1B_full_single_device"]),
        ({"args": [LORA]}, ["lora_finetune_single_device", "llama3_2/1B_lora_single_device"]),
        (
            {"args": [LORA], "resourcesPerNode": {"limits": {"nvidia.com/gpu": "2"}}},
            ["--rdzv", "lora_finetune_distributed", "llama3_2/1B_lora"],
        ),
        ({"numProcPerNode": 2}, ["--rdzv", "full_finetune_distributed", "llama3_2/1B_full"]),
    ],
)
def test_torchtune_gets_its_recipe_and_the_runtimes_paths(
    fields: dict[str, Any], start: list[str]
) -> None:
    runtime = TORCHTUNE
    # One GPU would be one device, whatever the processes.
    if "numProcPerNode" in fields:
        runtime = TrainingRuntime(name=runtime.name, framework="torchtune", command=runtime.command)
    found = completed(runtime, command=["tune", "run"], **fields)
    *rendezvous, recipe, config = start
    wanted = [recipe, "--config", config, *PATHS]
    if rendezvous:
        wanted.insert(0, "--rdzv_endpoint=$(PET_MASTER_ADDR):$(PET_MASTER_PORT)")
    assert found["command"] == ["tune", "run", *wanted]
    assert found.get("args", []) == fields.get("args", [])


def test_torchtunes_overrides_alone_are_completed_too() -> None:
    assert completed(TORCHTUNE, args=[LORA])["command"][2] == "lora_finetune_single_device"
    # Nothing said is what the runtime says, and another command is its writer's.
    assert completed(TORCHTUNE, numNodes=1) == {"numNodes": 1}
    mine = completed(TORCHTUNE, command=["sh"], args=["-c"])
    assert (mine["command"], mine["args"]) == (["sh"], ["-c"])


def test_a_runtime_of_any_name_says_its_model() -> None:
    marks = {"windlass.dev/torchtune-model": "qwen2_5/1.5B"}
    runtime = TrainingRuntime(name="our-own-small-model", framework="torchtune", annotations=marks)
    found = completed(runtime, command=["tune", "run"], numProcPerNode=1)
    assert found["command"][-1] == "qwen2_5/1.5B_full_single_device"
    nameless = TrainingRuntime(name="our-own-small-model", framework="torchtune")
    ((field, message),) = refused(nameless, command=["tune", "run"])
    assert field == "spec.runtimeRef.name"
    assert "llama3_2/1B" in message


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"args": ["epochs=1", "output_dir=/"]}, "spec.trainer.args[1]"),
        ({"numNodes": 2}, "spec.trainer.numNodes"),
        (
            {
                "args": [LORA, "model.quantize_base=True"],
                "resourcesPerNode": {"limits": {"nvidia.com/gpu": 4}},
            },
            "spec.trainer.numProcPerNode",
        ),
    ],
)
def test_torchtune_is_refused_with_the_field_at_fault(fields: dict[str, Any], field: str) -> None:
    assert [where for where, _ in refused(TORCHTUNE, command=["tune", "run"], **fields)] == [field]


@pytest.mark.parametrize(
    "words",
    [
        {"command": ["python", "-m", "trl"], "args": ["dpo", "--beta", "0.1"]},
        {"command": ["trl", "dpo"], "args": ["--beta", "0.1"]},
        {"command": ["python3", "-m", "trl.scripts.dpo"], "args": ["--beta", "0.1"]},
    ],
)
def test_trl_runs_under_torchrun(words: dict[str, Any]) -> None:
    found = completed(TRL, **words)
    assert found["command"] == ["torchrun", "-m", "trl.scripts.dpo"]
    assert found["args"] == [*PLACES, "--beta", "0.1"]


def test_trls_arguments_keep_what_the_runtime_knows_and_they_do_not() -> None:
    # Without a command, it is the runtime's.
    given = ["--output-dir=/mine", "--max_steps", "5"]
    assert completed(TRL, args=given)["args"] == [*PLACES[:4], *given]
    settings = ["--config", "/workspace/dataset/settings.yaml"]
    assert completed(TRL, args=settings)["args"] == settings
    assert completed(TRL) == {}
    # The runtime's arguments are those of no script but its own.
    assert completed(TRL, command=["trl"], args=["sft"])["args"] == []
    other = {"command": ["python", "train.py"], "args": ["--max_seq_length", "8"]}
    found = completed(TRL, **other)
    assert {name: found[name] for name in other} == other
    assert [one["name"] for one in found["env"]] == RENDEZVOUS
    assert refused(TRL, **other) == []


@pytest.mark.parametrize(
    ("words", "field", "said"),
    [
        ({"command": ["trl", "ppo"]}, "spec.trainer.command", "grpo or rloo"),
        ({"command": ["trl", "orpo"]}, "spec.trainer.command", "dpo"),
        ({"command": ["trl"], "args": ["chat"]}, "spec.trainer.command", "distillation"),
        ({"command": ["trl"]}, "spec.trainer.command", "sft"),
        ({"args": ["--max_seq_length", "8"]}, "spec.trainer.args[0]", "--max_length"),
        (
            {"command": ["trl"], "args": ["sft", "--num_processes", "2"]},
            "spec.trainer.args[1]",
            "numProcPerNode",
        ),
        ({"args": ["--bf16", "--max_steps", "5"]}, "spec.trainer.args[0]", "--bf16 true"),
        ({"args": ["--max_steps", "5", "--learning-rat3=1"]}, "spec.trainer.args[2]", "_rate"),
        # Of another method.
        ({"args": ["--num_generations", "8"]}, "spec.trainer.args[0]", "no --num_generations"),
        (
            {"command": ["trl", "dpo"], "args": ["--packing", "true"]},
            "spec.trainer.args[0]",
            "no --packing",
        ),
    ],
)
def test_what_trl_has_not_is_refused(words: dict[str, Any], field: str, said: str) -> None:
    ((where, message),) = refused(TRL, **words)
    assert where == field
    assert said in message


def test_flags_are_judged_where_the_release_is_known() -> None:
    nameless = TrainingRuntime(name="trl-of-somebody", framework="trl", args=TRL.args)
    for unknown in ("--max_seq_length", "--of-tomorrow"):
        assert refused(nameless, args=[unknown, "8"]) == []
    later = replace(TRL, annotations={"windlass.dev/trl-version": "2.0.0"})
    assert refused(later, args=["--of-tomorrow", "8"]) == []
    # Another script than TRL's takes what it takes.
    own = replace(TRL, command=("torchrun", "train.py"))
    assert refused(own, args=["--of-tomorrow", "8"]) == []


def test_flags_are_taken_as_argparse_takes_them() -> None:
    taken = ["--max_ste", "5", "--no_push_to_hub", "--output-dir", "/o", "--config", "c.yaml"]
    assert refused(TRL, args=taken) == []
