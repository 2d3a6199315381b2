"""Training that begins with the adapter of the job's model instead of a fresh one."""

import argparse
import importlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, get_peft_model_state_dict
from safetensors.torch import load_file

from windlass.backends.adapters import OPTION
from windlass_agent.runner.protocol.outcome import Failure

_WEIGHTS = "adapter_model.safetensors"
# The name under which TRL's trainers look for an adapter of the reference model.
_REFERENCE = "ref"
_REFERRING = frozenset({"dpo", "kto", "grpo", "rloo"})
_ORPO = "trl.experimental.orpo.orpo_trainer"


def split_option(argv: Sequence[str]) -> tuple[Path | None, list[str]]:
    """Returns the folder of the adapter to begin with, and the other arguments."""
    parser = argparse.ArgumentParser(allow_abbrev=False, add_help=False)
    parser.add_argument(OPTION, dest="folder", type=Path)
    ours, others = parser.parse_known_args(argv)
    return ours.folder, others


def begin_with(folder: Path, command: str, training_args: Any) -> None:
    """Has the trainer of a command begin with the adapter in a folder, and refer to it.

    Without the second, TRL compares with the model without any adapter, which is not the one
    that training begins with.
    """
    name = _ORPO if command == "orpo" else f"trl.trainer.{command}_trainer"
    trainer: Any = importlib.import_module(name)
    make_fresh = trainer.get_peft_model
    refers = command in _REFERRING and training_args.beta != 0

    def make(model: Any, config: LoraConfig, **settings: Any) -> Any:
        tuned = make_fresh(model, config, **settings)
        copy_adapter(folder, tuned)
        if refers:
            _add_reference(tuned, config, **settings)
        return tuned

    trainer.get_peft_model = make


@torch.no_grad()  # type: ignore[untyped-decorator]  # mypy skips torch
def copy_adapter(folder: Path, model: Any) -> None:
    """Gives a model's fresh adapter the weights of another of its rank or less.

    Both compute the same: B is zero in what is added, and makes up for another scale. Raises
    Failure `adapter_does_not_fit`.
    """
    ours, theirs = model.peft_config["default"], LoraConfig.from_pretrained(str(folder))
    if ours.use_dora != theirs.use_dora:
        raise _unfit("one is DoRA, and the other is not")
    scale = _scale(theirs) / _scale(ours)
    fresh = get_peft_model_state_dict(model)
    for name, weight in load_file(folder / _WEIGHTS).items():
        target = fresh.get(name)
        if target is None:
            raise _unfit(f"{name} is not trained")
        if any(have < need for have, need in zip(target.shape, weight.shape, strict=True)):
            raise _unfit(f"{name} is larger")
        part = target[tuple(map(slice, weight.shape))]
        part.copy_(weight * scale if ".lora_B." in name or "lora_embedding_B" in name else weight)


def _scale(config: LoraConfig) -> float:
    return float(config.lora_alpha / (config.r**0.5 if config.use_rslora else config.r))


@torch.no_grad()  # type: ignore[untyped-decorator]  # mypy skips torch
def _add_reference(model: Any, config: LoraConfig, **settings: Any) -> None:
    # A reference says the same each time.
    model.add_adapter(_REFERENCE, replace(config, lora_dropout=0.0), **settings)
    for name, parameter in list(model.named_parameters()):
        if ".default." in name:
            copy = model.get_parameter(name.replace(".default.", f".{_REFERENCE}."))
            copy.requires_grad_(False).copy_(parameter)


def _unfit(reason: str) -> Failure:
    return Failure(
        "adapter_does_not_fit",
        f"Training cannot begin with the job's model: of its adapter, {reason}.",
        param="model",
    )
