"""Base models that packed passes train as transformers would, and those that are refused."""

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.support.factories import tuning_engines as make
from transformers import AutoConfig, AutoModelForCausalLM

from windlass_agent.tuning.engine import TuningEngine
from windlass_agent.tuning.network.base import BaseNetwork, UnfitBase
from windlass_agent.tuning.requests.limits import TuningLimits
from windlass_agent.tuning.requests.refusal import TuningRefused

SMALL: dict[str, Any] = {
    "vocab_size": make.VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": make.CONTEXT,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}
MOE = {"moe_intermediate_size": 32, "num_experts": 4, "num_experts_per_tok": 2}
FIT: dict[str, dict[str, Any]] = {
    "qwen2": {},
    "qwen3": {},
    "mistral": {"sliding_window": 8},
    "gemma3_text": {"sliding_window": 8, "layer_types": ["sliding_attention", "full_attention"]},
    "qwen3_moe": MOE,
    "phi3": {},
    "smollm3": {},
}


def model(kind: str, **settings: Any) -> Any:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    config = AutoConfig.for_model(kind, **{**SMALL, **settings})
    return AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()


@pytest.mark.parametrize(("kind", "settings"), FIT.items(), ids=FIT.keys())
def test_a_packed_pass_is_what_the_model_computes(kind: str, settings: dict[str, Any]) -> None:
    """Also of sequences that are longer than a window, beside others of other lengths."""
    network = model(kind, **settings)
    lengths = (25, 3, 14)
    rows = [make.example(draw, length) for draw, length in enumerate(lengths)]
    with torch.no_grad():
        expected = [
            network(input_ids=torch.from_numpy(row.tokens)[None]).logits[0].log_softmax(-1)
            for row in rows
        ]
    engine = TuningEngine(BaseNetwork.fit(network, make.IDENTITY), TuningLimits())
    engine.open("run", make.spec())
    (result,) = make.losses(engine, "run", make.learning(*rows))
    for row, found, whole in zip(rows, result.logprobs, expected, strict=True):
        targets = torch.from_numpy(row.inputs["target_tokens"])
        theirs = whole.gather(-1, targets[:, None])[:, 0]
        assert torch.allclose(torch.from_numpy(found), theirs, atol=1e-4)
    assert any(tensor.any() for tensor in make.gradients(engine, "run").values())


def test_the_window_of_a_model_is_seen() -> None:
    """The comparison above would tell a model with a window from one without."""
    ids = torch.from_numpy(make.example(0, 25).tokens)[None]
    with torch.no_grad():
        narrow = model("mistral", sliding_window=8)(input_ids=ids).logits
        wide = model("mistral", sliding_window=None)(input_ids=ids).logits
    assert not torch.allclose(narrow, wide, atol=1e-3)


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("gemma2", {"final_logit_softcapping": 1.0, "attn_logit_softcapping": 1.0}),
        ("granite", {"logits_scaling": 8.0}),
        ("mamba", {"state_size": 8}),
    ],
)
def test_a_model_that_would_train_on_something_else_is_refused(
    kind: str, settings: dict[str, Any]
) -> None:
    with pytest.raises(UnfitBase):
        BaseNetwork.fit(model(kind, **settings), make.IDENTITY)


def test_a_folder_that_is_no_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(UnfitBase):
        BaseNetwork.load(tmp_path, make.IDENTITY)


def test_a_run_on_layers_that_the_base_lacks_is_refused() -> None:
    """Layers of GPT-2 are no linear ones, its head aside."""
    network = model("gpt2", n_embd=64, n_layer=2, n_head=4, n_positions=make.CONTEXT)
    engine = TuningEngine(BaseNetwork.fit(network, make.IDENTITY), TuningLimits())
    with pytest.raises(TuningRefused, match="no layers"):
        engine.open("run", make.spec(targets=frozenset(("attention", "mlp"))))
