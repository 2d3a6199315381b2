"""Adapters that begin as another: what they compute, and what they are compared with."""

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

from windlass_agent.runner.protocol.outcome import Failure
from windlass_agent.runner.trainers.trl import continuing

pytestmark = pytest.mark.torch
IDS = torch.arange(24).view(2, 12) % 64
ATTENTION = ["q_proj", "v_proj"]


def base() -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2,
    )  # fmt: skip
    return LlamaForCausalLM(config).eval()


def lora(rank: int, **settings: Any) -> LoraConfig:
    settings = {"lora_alpha": 2 * rank, "target_modules": ATTENTION} | settings
    return LoraConfig(task_type="CAUSAL_LM", r=rank, **settings)


def saved(folder: Path, config: LoraConfig) -> Path:
    """An adapter that changes what its model says."""
    model = get_peft_model(base(), config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.requires_grad:
                scale = 1 if "magnitude" in name else 0.2
                parameter.add_(scale * torch.rand_like(parameter))
    model.save_pretrained(str(folder))
    return folder


@torch.no_grad()  # type: ignore[untyped-decorator]  # mypy skips torch
def logits(model: Any) -> torch.Tensor:
    return model.eval()(IDS).logits


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (lora(4), lora(4)),
        (lora(4), lora(16)),
        (lora(4), lora(4, lora_alpha=3)),
        (lora(4), lora(8, use_rslora=True)),
        (lora(4, use_rslora=True), lora(4)),
        (lora(4), lora(4, target_modules="all-linear")),
        (lora(4, use_dora=True), lora(4, use_dora=True)),
        (lora(4, use_dora=True), lora(8, use_dora=True, target_modules="all-linear")),
    ],
    ids=["same", "rank", "alpha", "to_rslora", "from_rslora", "modules", "dora", "larger_dora"],
)
def test_an_adapter_computes_what_it_begins_as(
    tmp_path: Path, first: LoraConfig, second: LoraConfig
) -> None:
    folder = saved(tmp_path, first)
    before = logits(PeftModel.from_pretrained(base(), folder))
    assert not torch.allclose(before, logits(base()), atol=1e-3)
    model = get_peft_model(base(), second)
    continuing.copy_adapter(folder, model)
    assert torch.allclose(logits(model), before, atol=2e-6)


def test_what_is_added_learns(tmp_path: Path) -> None:
    folder = saved(tmp_path, lora(2))
    model = get_peft_model(base(), lora(4))
    continuing.copy_adapter(folder, model)
    model(IDS, labels=IDS).loss.backward()
    parts = {name: p.grad for name, p in model.named_parameters() if ".lora_B." in name}
    assert parts
    assert all(part is not None and (part[:, 2:] != 0).any() for part in parts.values())


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (lora(8), lora(4)),
        (lora(4, target_modules="all-linear"), lora(4)),
        (lora(4, use_dora=True), lora(4)),
    ],
    ids=["rank", "modules", "dora"],
)
def test_one_that_cannot_hold_another_is_refused(
    tmp_path: Path, first: LoraConfig, second: LoraConfig
) -> None:
    folder = saved(tmp_path, first)
    with pytest.raises(Failure) as refused:
        continuing.copy_adapter(folder, get_peft_model(base(), second))
    assert (refused.value.code, refused.value.param) == ("adapter_does_not_fit", "model")


@pytest.mark.parametrize(("command", "beta", "refers"), [("dpo", 0.1, True), ("grpo", 0.0, False)])
def test_the_model_it_began_as_is_its_reference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, beta: float, refers: bool
) -> None:
    folder = saved(tmp_path, lora(4))
    trainer: Any = ModuleType("a trainer of TRL's")
    trainer.get_peft_model = get_peft_model
    monkeypatch.setitem(sys.modules, f"trl.trainer.{command}_trainer", trainer)
    continuing.begin_with(folder, command, SimpleNamespace(beta=beta))
    model = trainer.get_peft_model(base(), lora(8))
    assert ("ref" in model.peft_config) == refers
    before = logits(model)
    trained = [p for name, p in model.named_parameters() if p.requires_grad]
    with torch.no_grad():
        for parameter in trained:
            parameter.add_(1)
    if refers:
        model.set_adapter("ref")
        assert torch.equal(logits(model), before)
    assert model.active_adapter == ("ref" if refers else "default")


def test_the_option_is_taken_out_of_the_others() -> None:
    flags = ["--save_steps", "500", "--bf16", "false"]
    assert continuing.split_option(flags) == (None, flags)
    assert continuing.split_option(["--begin-with", "/a", *flags]) == (Path("/a"), flags)
