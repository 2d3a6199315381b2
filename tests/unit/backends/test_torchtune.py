import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from windlass.backends import (
    InvalidConfig,
    LLMBackend,
    LoraConfig,
    RenderContext,
    Sizing,
    TorchTuneConfig,
    TorchTuneInstructDataset,
    get_backend,
)

SIZING = Sizing(examples=100, model_bytes=3_000_000)


def test_it_is_installed_under_its_name() -> None:
    assert get_backend("torchtune") is TorchTuneConfig
    assert issubclass(TorchTuneConfig, LLMBackend)
    assert TorchTuneConfig().to_command() == ("tune", "run")


def test_what_callers_write_is_read_and_written_back() -> None:
    config = TorchTuneConfig(num_nodes=2, resources_per_node={"gpu": 8})
    assert (config.num_nodes, config.resources_per_node) == (2, {"gpu": 8})
    config.num_nodes = 3
    assert config == TorchTuneConfig(num_nodes=3, resources_per_node={"gpu": 8})
    assert (TorchTuneConfig().num_nodes, TorchTuneConfig().resources_per_node) == (None, None)


def test_an_adapter_on_several_nodes_is_refused() -> None:
    TorchTuneConfig(num_nodes=2).validate()
    TorchTuneConfig(num_nodes=1, peft_config=LoraConfig()).validate()
    with pytest.raises(InvalidConfig, match="adapters on one node") as caught:
        TorchTuneConfig(num_nodes=2, peft_config=LoraConfig()).validate()
    assert caught.value.field == "num_nodes"


def test_a_format_that_is_no_format_is_refused() -> None:
    text: Any = "parquet"
    config = TorchTuneConfig(dataset_preprocess_config=TorchTuneInstructDataset(source=text))
    with pytest.raises(InvalidConfig, match=r"DataFormat\.PARQUET"):
        config.to_args()


@pytest.mark.parametrize(
    ("config", "field"),
    [
        (TorchTuneConfig(num_nodes=2), "num_nodes"),
        (TorchTuneConfig(resources_per_node={"cpu": 4}), "resources_per_node"),
    ],
)
def test_recipes_of_several_processes_are_refused_on_a_cpu(
    config: TorchTuneConfig, field: str
) -> None:
    assert config.to_args(RenderContext.of_pod(device="cuda")) == []
    with pytest.raises(InvalidConfig, match="recipes that need GPUs") as caught:
        config.to_args(RenderContext.of_pod(device="cpu"))
    assert caught.value.field == field
    alone = replace(config, num_nodes=1, resources_per_node={"cpu": "500m"})
    assert alone.to_args(RenderContext.of_pod(device="cpu")) == []


def job(**extra: object) -> TorchTuneConfig:
    return TorchTuneConfig.from_openai(
        method="supervised", hyperparameters={}, seed=1, sizing=SIZING, extra=extra
    )


def test_a_job_becomes_a_document_and_back() -> None:
    config = job(rank=8)
    document = config.to_document()
    assert document == {
        "method": "supervised",
        "learning_rate": 0.00587,
        "seed": 1,
        "adapter": {"rank": 8, "alpha": 16, "dropout": 0.0, "target_modules": "all-linear"},
        "epochs": 8,
        "batch_size": 4,
        "gradient_accumulation_steps": 1,
        "lr_scheduler": "cosine",
        "warmup_ratio": 0.03,
        "weight_decay": 0.0,
        "max_length": 2048,
        "beta": None,
    }
    assert TorchTuneConfig.from_document(document, 1) == config
    with pytest.raises(InvalidConfig, match="reads version 1, not 2"):
        TorchTuneConfig.from_document(document, 2)
    with pytest.raises(InvalidConfig, match="unknown field"):
        TorchTuneConfig.from_document({**document, "optimizer._component_": "os.system"}, 1)


def test_what_only_later_releases_know_is_said_of_jobs_that_ask_for_it() -> None:
    document = job(rank=8, load_in_4bit=True).to_document()
    assert document["adapter"] == {
        "rank": 8,
        "alpha": 16,
        "dropout": 0.0,
        "target_modules": "all-linear",
        "load_in_4bit": True,
    }
    assert TorchTuneConfig.from_document(document, 1) == job(rank=8, load_in_4bit=True)
    assert job(lora=False).to_document()["adapter"] is None


def test_a_job_runs_under_our_entry_and_nowhere_else() -> None:
    context = RenderContext(
        model=Path("/m"),
        dataset=Path("/d"),
        output=Path("/o"),
        device="cpu",
        python="/env/python",
        resume_from=Path("/r"),
    )
    config = job()
    assert config.to_command(context) == (
        *("/env/python", "-m"),
        "windlass_agent.runner.trainers.torchtune.entry",
    )
    *places, name, document, resume, checkpoint = config.to_args(context)
    assert places == ["--model", "/m", "--dataset", "/d", "--output", "/o", "--device", "cpu"]
    assert (name, resume, checkpoint) == ("--training", "--resume", "/r")
    assert json.loads(document) == config.to_document()
    with pytest.raises(InvalidConfig, match="job: runs under Windlass"):
        config.to_args()
    with pytest.raises(InvalidConfig, match="load_in_4bit: must be false on several devices"):
        job(load_in_4bit=True).to_args(replace(context, processes=2))
    with pytest.raises(InvalidConfig, match="configuration of a TrainJob"):
        TorchTuneConfig().to_document()


@pytest.mark.parametrize(
    ("method", "extra", "processes", "recipe"),
    [
        ("supervised", {}, 1, "lora_finetune_single_device"),
        ("supervised", {}, 2, "lora_finetune_distributed"),
        ("supervised", {"lora": False}, 1, "full_finetune_single_device"),
        ("supervised", {"lora": False}, 2, "full_finetune_distributed"),
        ("supervised", {"lora": False, "num_nodes": 2}, 1, "full_finetune_distributed"),
        ("dpo", {}, 1, "lora_dpo_single_device"),
        ("dpo", {}, 2, "lora_dpo_distributed"),
    ],
)
def test_the_recipe_follows_from_the_method_and_the_place(
    method: str, extra: dict[str, object], processes: int, recipe: str
) -> None:
    config = TorchTuneConfig.from_openai(
        method=method,
        hyperparameters={},
        seed=1,
        sizing=replace(SIZING, processes=processes),
        extra=extra,
    )
    assert config.job is not None
    assert config.job.recipe(processes) == recipe
    assert config.num_nodes == extra.get("num_nodes")
    assert TorchTuneConfig.from_document(config.to_document(), 1) == config
    assert config.dataset_format == ("preference" if method == "dpo" else "chat")


def test_several_processes_share_a_batch_and_are_brought_together_by_torchrun() -> None:
    config = TorchTuneConfig.from_openai(
        method="supervised",
        hyperparameters={"batch_size": 16},
        seed=1,
        sizing=replace(SIZING, processes=4),
        extra={"lora": False, "num_nodes": 2},
    )
    assert config.job is not None
    assert config.job.batch_size * config.job.gradient_accumulation_steps == 2
    context = RenderContext(
        model=Path("/m"), dataset=Path("/d"), output=Path("/o"), device="cuda", processes=4
    )
    command = config.to_command(replace(context, nodes=2))
    assert command[1:] == ("-m", "torch.distributed.run", "-m", command[-1])
    assert command[-1] == "windlass_agent.runner.trainers.torchtune.entry"
    assert "--nproc-per-node" in config.to_command(context)


@pytest.mark.parametrize(
    ("method", "extra", "field", "message"),
    [
        ("kto", {}, "windlass.method", "'kto' needs the backend trl"),
        ("reinforcement", {}, "method.type", "needs the backend trl"),
        ("dpo", {"lora": False}, "windlass.config.lora", "must be true for dpo"),
        ("supervised", {"lora": False, "rank": 4}, "windlass.config.rank", "only to LoRA"),
        ("supervised", {"lora": False, "load_in_4bit": True}, None, "only to LoRA"),
        ("dpo", {"use_dora": True}, "windlass.config.use_dora", "must be false for dpo"),
        ("supervised", {"num_nodes": 2}, "windlass.config.num_nodes", "on one node"),
        ("supervised", {"optimizer._component_": "os.system"}, None, "unknown field"),
        ("supervised", {"model.lora_rank": 4}, None, "unknown field"),
        (
            *("supervised", {"target_modules": ["q_proj", "up_proj"]}),
            *("windlass.config.target_modules", "down_proj, gate_proj is missing"),
        ),
        (
            *("supervised", {"target_modules": ["up_proj", "gate_proj", "down_proj"]}),
            *("windlass.config.target_modules", "a module of the attention"),
        ),
        ("supervised", {"target_modules": ["lm_head"]}, None, "Invalid enum value 'lm_head'"),
    ],
)
def test_what_no_recipe_trains_is_refused_by_its_field(
    method: str, extra: dict[str, object], field: str | None, message: str
) -> None:
    with pytest.raises(InvalidConfig, match=message) as caught:
        TorchTuneConfig.from_openai(
            method=method, hyperparameters={}, seed=1, sizing=SIZING, extra=extra
        )
    if field is not None:
        assert caught.value.field == field


def test_four_bits_are_refused_on_several_devices() -> None:
    with pytest.raises(InvalidConfig, match="QLoRA takes one") as caught:
        TorchTuneConfig.from_openai(
            method="supervised",
            hyperparameters={},
            seed=1,
            sizing=replace(SIZING, processes=2),
            extra={"load_in_4bit": True},
        )
    assert caught.value.field == "windlass.config.load_in_4bit"


def test_modules_go_by_the_names_of_the_models_own_files() -> None:
    config = job(target_modules=["q_proj", "o_proj"])
    assert config.job is not None
    assert config.job.adapter is not None
    assert config.job.adapter.attention_modules == ["q_proj", "output_proj"]
    assert not config.job.adapter.has_mlp
