"""TorchTune recipe configurations, for models as their files describe them."""

from pathlib import Path
from typing import Any

import pytest

from windlass.backends import Sizing, TorchTuneConfig
from windlass.backends.torchtune.document import Adapter, TorchTuneTraining
from windlass_agent.runner.protocol.outcome import Failure
from windlass_agent.runner.trainers.torchtune.config import RecipeInputs, Steps, recipe_config
from windlass_agent.runner.trainers.torchtune.model import component

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "vocab_size": 128_256,
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "hidden_act": "silu",
    "attention_bias": False,
    "mlp_bias": False,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500_000.0,
    "rope_scaling": {
        "factor": 32.0,
        "high_freq_factor": 4.0,
        "low_freq_factor": 1.0,
        "original_max_position_embeddings": 8192,
        "rope_type": "llama3",
    },
    "tie_word_embeddings": True,
}
BUILT = {
    "vocab_size": 128_256,
    "num_layers": 16,
    "num_heads": 32,
    "num_kv_heads": 8,
    "embed_dim": 2048,
    "intermediate_dim": 8192,
    "max_seq_len": 2048,
    "norm_eps": 1e-5,
    "rope_base": 500_000.0,
    "tie_word_embeddings": True,
    "scale_factor": 32.0,
}
PLACES = RecipeInputs(model=Path("/m"), dataset=Path("/d"), output=Path("/o"), device="cpu")


def training(method: str = "supervised", **extra: Any) -> TorchTuneTraining:
    config = TorchTuneConfig.from_openai(
        method=method,
        hyperparameters={"n_epochs": 2, "batch_size": 8},
        seed=7,
        sizing=Sizing(examples=24, model_bytes=3_000_000),
        extra=extra,
    )
    assert config.job is not None
    return config.job


def rendered(
    job: TorchTuneTraining, places: RecipeInputs = PLACES, rows: int = 24
) -> dict[str, Any]:
    return recipe_config(
        job,
        places,
        model=LLAMA,
        weights=["model.safetensors"],
        rows=rows,
        max_tokens=2048,
        pad_id=3,
    )


def test_llama_3_2_is_what_its_file_says() -> None:
    assert component(LLAMA, None, max_tokens=2048) == {
        "_component_": "torchtune.models.llama3_2.llama3_2",
        **BUILT,
    }


def test_an_adapter_is_added_to_the_model() -> None:
    adapter = Adapter(rank=8, alpha=16, target_modules=["q_proj", "o_proj"])
    assert component(LLAMA, adapter, max_tokens=2048) == {
        "_component_": "torchtune.models.llama3_2.lora_llama3_2",
        **BUILT,
        "lora_attn_modules": ["q_proj", "output_proj"],
        "apply_lora_to_mlp": False,
        "apply_lora_to_output": False,
        "lora_rank": 8,
        "lora_alpha": 16,
        "lora_dropout": 0.0,
        "use_dora": False,
        "quantize_base": False,
    }


@pytest.mark.parametrize("family", ["llama", "qwen2"])
def test_dora_and_four_bits_are_of_the_model(family: str) -> None:
    plain = {**LLAMA, "model_type": family, "rope_scaling": None}
    dora = component(plain, Adapter(use_dora=True), max_tokens=64)
    assert (dora["use_dora"], dora["quantize_base"]) == (True, False)
    quantized = component(plain, Adapter(load_in_4bit=True), max_tokens=64)
    assert (quantized["use_dora"], quantized["quantize_base"]) == (False, True)


def test_matrices_that_fill_no_block_of_four_bits_are_refused() -> None:
    small = {**LLAMA, "head_dim": 16, "hidden_size": 512, "num_key_value_heads": 1}
    assert component(small, Adapter(), max_tokens=64)
    with pytest.raises(Failure, match="multiple of 16384 weights, and one of this has 512 x 16"):
        component(small, Adapter(load_in_4bit=True), max_tokens=64)


def test_positions_are_read_in_either_spelling() -> None:
    spelt = {key: value for key, value in LLAMA.items() if not key.startswith("rope")}
    new = {**spelt, "rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0}}
    old = {**spelt, "rope_theta": 10_000.0, "rope_scaling": None}
    for config in (new, old):
        built = component(config, None, max_tokens=64)
        assert (built["rope_base"], built["scale_factor"]) == (10_000.0, 1.0)


def test_qwen_has_a_builder_of_its_own() -> None:
    qwen = {**LLAMA, "model_type": "qwen2", "rope_scaling": None, "attention_bias": None}
    built = component(qwen, None, max_tokens=64)
    assert built["_component_"] == "torchtune.models.qwen2.qwen2"
    assert "scale_factor" not in built


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "gpt_neox"}, "of type gpt_neox"),
        ({"head_dim": 128}, "attention heads"),
        ({"attention_bias": True}, "not support attention_bias"),
        ({"hidden_act": "gelu"}, "not support activation 'gelu'"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "no 'yarn' scaling"),
        (
            {"rope_scaling": {**LLAMA["rope_scaling"], "low_freq_factor": 2.0}},
            "with these settings",
        ),
        ({"model_type": "qwen2"}, "no 'llama3' scaling of positions for this type"),
    ],
)
def test_an_architecture_without_a_builder_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(Failure, match=message) as caught:
        component({**LLAMA, **change}, None, max_tokens=64)
    assert (caught.value.code, caught.value.param) == ("model_not_supported", "model")
    assert "Try the backend trl." in caught.value.message


def test_a_recipe_is_told_all_of_it_by_us() -> None:
    config = rendered(training(lora=False))
    parts = "windlass_agent.runner.trainers.torchtune.parts"
    assert config == {
        "model": {"_component_": "torchtune.models.llama3_2.llama3_2", **BUILT},
        "tokenizer": {"_component_": f"{parts}.Padding", "pad_id": 3},
        "dataset": {"_component_": f"{parts}.TokenRows", "source": "/d/train.jsonl"},
        "checkpointer": {
            "_component_": "torchtune.training.FullModelHFCheckpointer",
            "checkpoint_dir": "/m",
            "checkpoint_files": ["model.safetensors"],
            "recipe_checkpoint": None,
            "output_dir": "/o/tune",
            "model_type": "LLAMA3_2",
        },
        "resume_from_checkpoint": False,
        "save_adapter_weights_only": False,
        "output_dir": "/o/tune",
        "seed": 7,
        "shuffle": True,
        "batch_size": 8,
        "gradient_accumulation_steps": 1,
        "epochs": 2,
        "max_steps_per_epoch": None,
        "optimizer": {"_component_": "torch.optim.AdamW", "lr": 0.00137, "weight_decay": 0.0},
        "optimizer_in_bwd": False,
        "lr_scheduler": {
            "_component_": "torchtune.training.lr_schedulers.get_cosine_schedule_with_warmup",
            "num_warmup_steps": 1,
            "num_cycles": 0.5,
        },
        "loss": {"_component_": "torchtune.modules.loss.CEWithChunkedOutputLoss"},
        "clip_grad_norm": 1.0,
        "compile": False,
        "device": "cpu",
        "dtype": "fp32",
        "enable_activation_checkpointing": False,
        "enable_activation_offloading": False,
        "metric_logger": {"_component_": f"{parts}.EventLogger"},
        "log_every_n_steps": 1,
        "log_peak_memory_stats": False,
    }


def test_adapters_preferences_and_gpus_change_their_part() -> None:
    adapter = rendered(training(lr_scheduler="constant"))
    # Merging on a CPU would change the base in place.
    assert adapter["save_adapter_weights_only"] is True
    assert adapter["lr_scheduler"]["num_cycles"] == 0.0
    assert rendered(training("dpo"))["loss"] == {
        "_component_": "torchtune.rlhf.loss.DPOLoss",
        "beta": 0.1,
    }
    on_gpu = rendered(training(), RecipeInputs(**{**vars(PLACES), "device": "cuda"}))
    assert (on_gpu["dtype"], on_gpu["enable_activation_checkpointing"]) == ("bf16", True)
    resumed = rendered(training(), RecipeInputs(**{**vars(PLACES), "resume": Path("/r")}))
    assert resumed["resume_from_checkpoint"] is True


@pytest.mark.parametrize(
    ("rows", "processes", "batch", "accumulation", "per_epoch"),
    [
        (24, 1, 8, 1, 3),
        (25, 1, 8, 1, 3),
        (5, 1, 5, 1, 1),
        (1, 1, 1, 1, 1),
        (32, 2, 8, 1, 2),
        (31, 2, 8, 1, 2),
        (30, 2, 8, 1, 1),
        (1, 4, 1, 1, 1),
    ],
)
def test_rows_that_fill_no_batch_are_no_step(
    rows: int, processes: int, batch: int, accumulation: int, per_epoch: int
) -> None:
    assert Steps.of(training(), rows, processes=processes) == Steps(
        batch_size=batch, accumulation=accumulation, per_epoch=per_epoch, total=2 * per_epoch
    )


def test_rows_that_are_left_out_are_told() -> None:
    def told(rows: int, processes: int) -> str:
        steps = Steps.of(training(), rows, processes=processes)
        return steps.rounding(rows, processes=processes)

    assert [told(24, 1), told(5, 1), told(31, 2)] == ["", "", ""]
    assert told(30, 2) == (
        "Each pass leaves out 14 of 30 examples, drawn anew for each: "
        "1 steps of 16 examples are made of the others."
    )
