"""Small models in files of safetensors, and their weights."""

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
INDEX = "model.safetensors.index.json"


def weights(seed: int = 0) -> dict[str, torch.Tensor]:
    """Tensors of several types, of whole blocks and of parts of one."""
    generator = torch.Generator().manual_seed(seed)
    return {
        "bias": torch.randn(333, generator=generator).bfloat16(),
        "embed.weight": torch.randn(64, 100, generator=generator),
        "empty": torch.zeros(0, 4),
        "scale": torch.randn((), generator=generator),
        "up.weight": torch.randn(96, 128, generator=generator).bfloat16(),
    }


def write_model(folder: Path, tensors: Mapping[str, torch.Tensor]) -> Path:
    """A folder as the Hub has it: two files and what belongs to them."""
    folder.mkdir()
    names = sorted(tensors)
    parts = dict(zip(SHARDS, (names[:3], names[3:]), strict=True))
    for shard, part in parts.items():
        save_file({name: tensors[name] for name in part}, folder / shard, {"format": "pt"})
    placed = ",".join(f'"{name}":"{shard}"' for shard, part in parts.items() for name in part)
    (folder / INDEX).write_text(f'{{"metadata":{{}},"weight_map":{{{placed}}}}}')
    (folder / "config.json").write_text('{"model_type":"llama"}')
    (folder / "pytorch_model.bin").write_bytes(b"weights of an old version")
    return folder


def read_model(folder: Path) -> dict[str, torch.Tensor]:
    """What safetensors itself reads."""
    return {name: one for shard in SHARDS for name, one in load_file(folder / shard).items()}


def same(one: Mapping[str, torch.Tensor], other: Mapping[str, torch.Tensor]) -> bool:
    """True where two models are equal to the bit."""
    return one.keys() == other.keys() and all(
        torch.equal(tensor, other[name]) for name, tensor in one.items()
    )
