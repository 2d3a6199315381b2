"""Adapters as PEFT, vLLM and the built-in engine read them, and back."""

from collections.abc import Sequence
from pathlib import Path

import msgspec
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from windlass_agent.tuning.network.adapter import DOWN, UP, LayerShape, Tensors, shapes
from windlass_agent.tuning.requests.operations import AdapterSpec
from windlass_agent.tuning.requests.refusal import TuningRefused
from windlass_agent.tuning.state.folders import digest, new_folder

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
_PREFIX, _SUFFIX = "base_model.model.", ".weight"
_LONGEST = 64 * 1024


class PeftConfig(msgspec.Struct, kw_only=True):
    """The words of PEFT's configuration that we write and read."""

    base_model_name_or_path: str
    r: int
    lora_alpha: int | float
    target_modules: list[str]
    peft_type: str = "LORA"
    task_type: str = "CAUSAL_LM"
    lora_dropout: float = 0.0
    bias: str = "none"
    fan_in_fan_out: bool = False
    init_lora_weights: bool = True
    inference_mode: bool = True


def export_adapter(folder: Path, weights: Tensors, spec: AdapterSpec, base: str) -> str:
    """Writes an adapter into a folder; returns the digest of its weights."""
    layers = {name.removesuffix(f".{DOWN}").removesuffix(f".{UP}") for name in weights}
    config = PeftConfig(
        base_model_name_or_path=base,
        r=spec.rank,
        lora_alpha=int(spec.alpha) if spec.alpha.is_integer() else spec.alpha,
        target_modules=sorted({layer.rpartition(".")[2] for layer in layers}),
    )
    with new_folder(folder) as draft:
        named = {
            f"{_PREFIX}{name}{_SUFFIX}": tensor.cpu().contiguous()
            for name, tensor in weights.items()
        }
        save_file(named, draft / WEIGHTS, metadata={"format": "pt"})
        (draft / CONFIG).write_bytes(msgspec.json.format(msgspec.json.encode(config)))
        return digest(draft / WEIGHTS)


def import_adapter(
    folder: Path, base: str, layers: Sequence[LayerShape], device: torch.device
) -> tuple[AdapterSpec, Tensors]:
    """Reads an adapter of this base that was exported here; raises TuningRefused."""
    try:
        with (folder / CONFIG).open("rb") as file:
            config = msgspec.json.decode(file.read(_LONGEST), type=PeftConfig)
        found = load_file(folder / WEIGHTS)
    except FileNotFoundError:
        raise TuningRefused("state_not_found", "there is no such adapter") from None
    except (OSError, msgspec.MsgspecError, SafetensorError) as error:
        raise TuningRefused("damaged_state", f"the adapter cannot be read: {error}") from error
    if config.base_model_name_or_path != base:
        raise TuningRefused("foreign_base", "the adapter is of another base model")
    tensors = {
        name.removeprefix(_PREFIX).removesuffix(_SUFFIX): tensor for name, tensor in found.items()
    }
    adapted = {name.removesuffix(f".{DOWN}").removesuffix(f".{UP}") for name in tensors}
    targets = frozenset(layer.target for layer in layers if layer.name in adapted)
    spec = AdapterSpec(rank=config.r, alpha=float(config.lora_alpha), seed=0, targets=targets)
    if {name: tuple(one.shape) for name, one in tensors.items()} != shapes(spec, layers):
        raise TuningRefused("damaged_state", "its tensors are not those of its configuration")
    if not all(one.dtype == torch.float32 and one.isfinite().all() for one in tensors.values()):
        raise TuningRefused("damaged_state", "its tensors are not finite float32")
    return spec, {name: tensor.to(device) for name, tensor in tensors.items()}
