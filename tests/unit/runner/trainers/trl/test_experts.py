"""Models with experts are trained, whatever their type calls them."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from transformers import AutoConfig

from windlass_agent.runner.trainers.trl.experts import leave_experts, name_experts

pytestmark = pytest.mark.torch


@pytest.mark.parametrize(
    ("model_type", "said"),
    [
        ("granitemoe", "num_local_experts"),
        ("phimoe", "num_local_experts"),
        ("deepseek_v3", "n_routed_experts"),
        ("mixtral", "num_local_experts"),
        ("llama", None),
    ],
)
def test_a_configuration_with_experts_answers_to_the_name_that_trl_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model_type: str, said: str | None
) -> None:
    made = AutoConfig.for_model(model_type, **({said: 6} if said else {}))
    made.save_pretrained(tmp_path)
    # It changes a type of the library, which other tests have too.
    monkeypatch.setattr(type(made), "attribute_map", type(made).attribute_map)
    name_experts(tmp_path)
    found = AutoConfig.from_pretrained(tmp_path)
    assert getattr(found, "num_experts", None) == (6 if said else None)


ATTENTION = ["k_proj", "o_proj", "q_proj", "v_proj"]


@pytest.mark.parametrize(
    ("model_type", "asked", "layers"),
    [
        ("qwen3_moe", "all-linear", ATTENTION),
        ("mixtral", "all-linear", ATTENTION),
        ("qwen3_moe", ["down_proj"], ["down_proj"]),
        ("qwen3", "all-linear", "all-linear"),
    ],
)
def test_an_adapter_on_all_layers_leaves_experts_alone(
    tmp_path: Path, model_type: str, asked: object, layers: object
) -> None:
    AutoConfig.for_model(model_type, num_hidden_layers=1).save_pretrained(tmp_path)
    told = SimpleNamespace(
        use_peft=True, lora_target_modules=asked, model_name_or_path=str(tmp_path)
    )
    leave_experts(told)
    assert told.lora_target_modules == layers
    told = SimpleNamespace(use_peft=False, lora_target_modules="all-linear")
    leave_experts(told)
    assert told.lora_target_modules == "all-linear"
