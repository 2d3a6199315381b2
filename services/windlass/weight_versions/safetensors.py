"""Tensors of a model's safetensors as bytes, by their names in the files."""

import json
import struct
from pathlib import Path
from typing import Literal

import numpy as np

from windlass.weight_versions.manifest import WIDTHS
from windlass.weight_versions.refusals import WeightsRefused
from windlass.weight_versions.tensors import ArrayBytes, TensorBytes

_INDEX = "model.safetensors.index.json"
# As safetensors bounds it.
_HEADER_BYTES = 100 * 2**20


def weight_files(model: Path) -> list[Path]:
    """The files of a model's folder that have its tensors."""
    index = model / _INDEX
    if not index.exists():
        return sorted(model.glob("*.safetensors"))
    names: dict[str, str] = json.loads(index.read_text())["weight_map"]
    return [model / name for name in sorted(set(names.values()))]


def mapped_tensors(path: Path, mode: Literal["r", "r+"] = "r") -> dict[str, TensorBytes]:
    """The tensors of a file, mapped; raises WeightsRefused for what versions cannot hold."""
    with path.open("rb") as file:
        (size,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(min(size, _HEADER_BYTES)))
    content = np.memmap(path, np.uint8, mode=mode, offset=8 + size)
    found: dict[str, TensorBytes] = {}
    for name, facts in header.items():
        if name == "__metadata__":
            continue
        dtype, (start, end) = facts["dtype"], facts["data_offsets"]
        if dtype not in WIDTHS:
            raise WeightsRefused("wrong_tensor", f"{name} is {dtype}, which no version holds.")
        found[name] = ArrayBytes(content[start:end], dtype, tuple(facts["shape"]))
    return found


def mapped_weights(model: Path) -> dict[str, TensorBytes]:
    """All tensors of a model's folder, to be read; raises WeightsRefused."""
    found: dict[str, TensorBytes] = {}
    for path in weight_files(model):
        found |= mapped_tensors(path)
    if not found:
        raise WeightsRefused("wrong_tensor", "The model has no safetensors.")
    return found
