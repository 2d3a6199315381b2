"""Engines whose weights no other process can see as they are computed with."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from windlass_vllm.engine.description import refuse_unshareable
from windlass_vllm.engine.extension import SharedWeightsWorker
from windlass_vllm.refusal import Refused


def configured(**words: Any) -> Any:
    """The configuration of vLLM of one that can be trained, but for some words."""
    found = {"world_size": 1, "data_parallel_size": 1, "quantization": None, "lora": None}
    found |= {"foreign": False, "eager": True} | words
    return SimpleNamespace(
        parallel_config=SimpleNamespace(
            world_size=found["world_size"], data_parallel_size=found["data_parallel_size"]
        ),
        model_config=SimpleNamespace(
            quantization=found["quantization"],
            trust_remote_code=found["foreign"],
            enforce_eager=found["eager"],
        ),
        quant_config=found["quantization"],
        lora_config=found["lora"],
        device_config=SimpleNamespace(device_type="cpu"),
    )


def model() -> torch.nn.Module:
    found = torch.nn.Module()
    found.mlp = torch.nn.Linear(4, 6)
    return found


def changed(change: Callable[[Any], None]) -> torch.nn.Module:
    found = model()
    change(found.mlp)
    return found


def with_weight(weight: torch.Tensor) -> Callable[[Any], None]:
    def change(module: Any) -> None:
        module.weight = torch.nn.Parameter(weight, requires_grad=False)

    return change


def pack(module: Any) -> None:
    copy = module.weight.detach().clone()
    module.cpu_linear = lambda x, weight, bias: torch.nn.functional.linear(x, copy, bias)


def fuse_experts(module: Any) -> None:
    module.experts = torch.nn.Module()
    module.experts.w13_weight = torch.nn.Parameter(torch.zeros(2, 4, 4))


def test_a_plain_engine_is_taken() -> None:
    refuse_unshareable(configured(), model())


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ({"world_size": 2}, "many_ranks"),
        ({"data_parallel_size": 2}, "many_ranks"),
        ({"quantization": "fp8"}, "quantized"),
        ({"lora": "any"}, "adapters_on"),
        ({"foreign": True}, "foreign_code"),
        ({"eager": False}, "graph_compiled"),
    ],
)
def test_a_configuration_is_refused_with_its_reason(words: dict[str, Any], reason: str) -> None:
    with pytest.raises(Refused) as error:
        refuse_unshareable(configured(**words), model())
    assert error.value.reason == reason


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (pack, "weights_packed"),
        (with_weight(torch.empty(0)), "weights_packed"),
        (with_weight(torch.zeros(4, 6).t()), "transposed"),
        (with_weight(torch.zeros(6, 4, dtype=torch.float16)), "quantized"),
        (with_weight(torch.zeros(6, 4, dtype=torch.int8)), "quantized"),
        (fuse_experts, "experts_fused"),
    ],
)
def test_weights_are_refused_with_their_reason(change: Callable[[Any], None], reason: str) -> None:
    with pytest.raises(Refused) as error:
        refuse_unshareable(configured(), changed(change))
    assert error.value.reason == reason


def test_a_worker_shares_nothing_unless_the_plugin_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("VLLM_PLUGINS", "other")
    said = SharedWeightsWorker().windlass_share("folder", 1, b"key")
    assert said["reason"] == "not_named"
