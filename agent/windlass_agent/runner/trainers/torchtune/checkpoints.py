"""Conversion of TorchTune's output after an epoch into a checkpoint to serve and to resume.

TorchTune writes `epoch_K/` and `recipe_state/`; Windlass uploads `checkpoint-STEP/`, and takes the
final model from the output folder itself.
"""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import torch
from safetensors.torch import load_file, save_file
from torchtune.models.convert_weights import tune_to_peft_adapter_weights

from windlass_agent.runner.trainers.torchtune.config import RESUMED, WORK

_STATE = "recipe_state.pt"
_ADAPTER_STATE = "adapter_model.pt"
_ADAPTER_WEIGHTS = "adapter_model.safetensors"
_ADAPTER_CONFIG = "adapter_config.json"
_HISTORY = "trainer_state.json"
_WEIGHTS = ("*.safetensors", "*.safetensors.index.json")
_TOKENIZER = (
    "tokenizer*.json", "tokenizer.model", "special_tokens_map.json", "added_tokens.json",
    "vocab.json", "vocab.txt", "merges.txt", "chat_template.jinja",
)  # fmt: skip


def begin_from(resume: Path, output: Path) -> None:
    """Lays a checkpoint of an earlier attempt where a recipe looks for what it goes on from."""
    state = output / WORK / "recipe_state"
    state.mkdir(parents=True)
    shutil.copyfile(resume / _STATE, state / _STATE)
    (output / WORK / RESUMED).symlink_to(resume)


def resumed_weights(resume: Path) -> list[str]:
    """The files of a model's own weights in a checkpoint, as a recipe is told of them."""
    return [f"{RESUMED}/{path.name}" for path in sorted(resume.glob("model*.safetensors"))]


def history_of(resume: Path) -> list[dict[str, Any]]:
    """The measures up to a checkpoint, each with the tokens that were trained by then."""
    entries: list[dict[str, Any]] = msgspec.json.decode((resume / _HISTORY).read_bytes())[
        "log_history"
    ]
    return entries


def step_of(resume: Path) -> int | None:
    """The step that a checkpoint was saved after; None in those of releases that kept no note."""
    state: dict[str, Any] = msgspec.json.decode((resume / _HISTORY).read_bytes())
    return state.get("global_step")


class Epochs:
    """Makes checkpoints of what one training saves, by the epoch that it saves in."""

    def __init__(
        self, model: Path, output: Path, config: dict[str, Any], *, has_dora: bool
    ) -> None:
        self._model = model
        self._output = output
        self._config = config
        self._has_dora = has_dora

    def keep(
        self, epoch: int, *, step: int, is_last: bool, dtype: str, history: Sequence[Any]
    ) -> Path:
        """Returns the checkpoint's folder; the last epoch's files are the final model too."""
        work = self._output / WORK
        source, target = work / f"epoch_{epoch}", self._output / f"checkpoint-{step}"
        target.mkdir()
        for pattern in _WEIGHTS:
            for path in source.glob(pattern):
                path.rename(target / path.name)
        for pattern in _TOKENIZER:
            for path in self._model.glob(pattern):
                shutil.copyfile(path, target / path.name)
        if (source / _ADAPTER_CONFIG).exists():
            self._describe_adapter(source, target)
        else:
            self._describe_model(target, dtype)
        if is_last:
            for path in target.iterdir():
                os.link(path, self._output / path.name)
        else:
            (work / "recipe_state" / _STATE).rename(target / _STATE)
            if (source / _ADAPTER_STATE).exists():
                (source / _ADAPTER_STATE).rename(target / _ADAPTER_STATE)
            told = {"global_step": step, "log_history": history}
            (target / _HISTORY).write_bytes(msgspec.json.encode(told))
        shutil.rmtree(source)
        return target

    def _describe_adapter(self, source: Path, target: Path) -> None:
        """Adds to TorchTune's description what PEFT writes, and other engines ask for."""
        config = msgspec.json.decode((source / _ADAPTER_CONFIG).read_bytes())
        config |= {"task_type": "CAUSAL_LM", "bias": "none", "inference_mode": True}
        if self._has_dora:
            config["use_dora"] = True
        (target / _ADAPTER_CONFIG).write_bytes(msgspec.json.encode(config))
        if self._config["model_type"] == "qwen2":
            _unpermuted(source / _ADAPTER_STATE, target / _ADAPTER_WEIGHTS, self._config)
        elif self._has_dora:
            _permute_magnitudes(target / _ADAPTER_WEIGHTS, self._config)

    def _describe_model(self, target: Path, dtype: str) -> None:
        config = {**self._config, "dtype": dtype}
        config.pop("torch_dtype", None)
        (target / "config.json").write_bytes(msgspec.json.encode(config))
        generation = self._model / "generation_config.json"
        if generation.exists():
            shutil.copyfile(generation, target / generation.name)


def _permute_magnitudes(path: Path, config: dict[str, Any]) -> None:
    """Brings DoRA's magnitudes into the order of a Llama's rows, as TorchTune does all else."""
    heads = config["num_attention_heads"]
    counts = {"q_proj": heads, "k_proj": config.get("num_key_value_heads") or heads}
    weights = load_file(path)
    for name, value in weights.items():
        *_, module, kind = name.split(".")
        if kind == "lora_magnitude_vector" and module in counts:
            pairs = value.view(counts[module], -1, 2)
            weights[name] = pairs.transpose(1, 2).flatten()
    save_file(weights, path, metadata={"format": "pt"})


def _unpermuted(source: Path, target: Path, config: dict[str, Any]) -> None:
    """Writes an adapter for PEFT with its rows as they are.

    TorchTune reorders those of queries and keys as Llama's weights are, and its Qwen2 has them
    in transformers' order already. Heads of two rows have nothing to reorder.
    """
    heads = config["num_attention_heads"]
    pairs = config["hidden_size"] // heads // 2
    weights = tune_to_peft_adapter_weights(
        torch.load(source, map_location="cpu", weights_only=True),
        num_heads=heads * pairs,
        num_kv_heads=config["num_key_value_heads"] * pairs,
        dim=config["hidden_size"],
        head_dim=2,
    )
    save_file(weights, target, metadata={"format": "pt"})
