"""Conversion of a LoRA adapter of PEFT to GGUF, as llama.cpp's convert_lora_to_gguf.py does it.

What such a file cannot hold is refused: weights beside the two matrices of each layer, and
magnitudes (DoRA).
"""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from safetensors import safe_open
from transformers import AutoConfig

from windlass_agent.gguf.layout import Unsupported, architecture_of, heads_of, interleaved

_PREFIX = "base_model.model."
_ENDS = (".lora_A.weight", ".lora_B.weight")
# PEFT keeps the base's own weights beside a LoRA of an embedding or a head.
_COPIED = ".base_layer.weight"
REFUSED = {
    "use_dora": "it is a DoRA adapter",
    "modules_to_save": "it has whole layers of its own (modules_to_save)",
    "trainable_token_indices": "it has tokens of its own (trainable_token_indices)",
    "rank_pattern": "its layers have different ranks (rank_pattern)",
    "alpha_pattern": "its layers have different scales (alpha_pattern)",
}


def write(adapter: Path, base: Path, target: Path) -> None:
    """Writes the adapter for the model in `base`; raises Unsupported."""
    peft: dict[str, Any] = json.loads((adapter / "adapter_config.json").read_text())
    for name, why in REFUSED.items():
        if peft.get(name):
            raise Unsupported(why)
    if peft.get("bias", "none") != "none":
        raise Unsupported("it trains biases")
    config = AutoConfig.from_pretrained(base, local_files_only=True)
    architecture = architecture_of(config)
    writer = gguf.GGUFWriter(target, gguf.MODEL_ARCH_NAMES[architecture])
    writer.add_type(gguf.GGUFType.ADAPTER)
    writer.add_string(gguf.Keys.Adapter.TYPE, "lora")
    writer.add_float32(gguf.Keys.Adapter.LORA_ALPHA, _alpha(peft))
    names = gguf.get_tensor_name_map(architecture, config.num_hidden_layers)
    count = 0
    for layer, suffix, tensor in _tensors(adapter):
        theirs = names.get_name(layer, try_suffixes=(".weight",))
        if theirs is None:
            raise Unsupported(f"it changes {layer!r}, which GGUF has no name for")
        if suffix == "lora_b" and (heads := heads_of(layer, config, architecture)):
            tensor = interleaved(tensor, heads)
        values: np.ndarray[Any, Any] = tensor.contiguous().numpy().astype(np.float32)
        writer.add_tensor(f"{theirs}.{suffix}", values)
        count += 1
    if not count:
        raise Unsupported("it has no weights")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _alpha(peft: dict[str, Any]) -> float:
    """The number that llama.cpp divides by the rank; rsLoRA divides by the rank's root."""
    alpha = float(peft["lora_alpha"])
    return alpha * math.sqrt(peft["r"]) if peft.get("use_rslora") else alpha


def _tensors(adapter: Path) -> Iterator[tuple[str, str, torch.Tensor]]:
    """Yields the name of a layer's weights, `lora_a` or `lora_b`, and the matrix."""
    with safe_open(adapter / "adapter_model.safetensors", framework="pt") as weights:
        for name in sorted(weights.keys()):
            if name.endswith(_COPIED):
                continue
            end = next((one for one in _ENDS if name.endswith(one)), None)
            layer = name.removeprefix(_PREFIX).removesuffix(end or "")
            if end is None or layer.endswith("embed_tokens"):
                raise Unsupported(f"it has weights {name!r}, which are not a LoRA of a layer")
            suffix = "lora_a" if end == _ENDS[0] else "lora_b"
            yield f"{layer}.weight", suffix, weights.get_tensor(name).float()
