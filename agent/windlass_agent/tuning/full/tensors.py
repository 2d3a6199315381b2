"""Files of safetensors, one tensor at a time: none holds a whole model in memory."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch

_WORDS = {torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16", torch.uint8: "U8"}
TYPES = {word: dtype for dtype, word in _WORDS.items() if dtype.is_floating_point}
_ALIGNMENT = 8
# Stores take 5 GiB in one piece.
SHARD_BYTES = 4 * 2**30

Shape = tuple[int, ...]


def write_tensors(
    path: Path,
    shapes: Mapping[str, Shape],
    dtypes: Mapping[str, torch.dtype],
    tensors: Iterator[torch.Tensor],
) -> None:
    """Writes tensors that come in the order of `shapes`, each as its type; raises OSError."""
    header, end = {}, 0
    for name, shape in shapes.items():
        begin, end = end, end + torch.Size(shape).numel() * dtypes[name].itemsize
        word = {"dtype": _WORDS[dtypes[name]], "shape": list(shape), "data_offsets": [begin, end]}
        header[name] = word
    encoded = json.dumps(header).encode()
    encoded += b" " * (-len(encoded) % _ALIGNMENT)
    with path.open("wb") as file:
        file.write(len(encoded).to_bytes(8, "little") + encoded)
        for name, tensor in zip(shapes, tensors, strict=False):
            content = tensor.detach().to("cpu", dtypes[name]).contiguous()
            file.write(memoryview(content.flatten().view(torch.uint8).numpy()))


def sharded(shapes: Mapping[str, Shape], width: int) -> list[dict[str, Shape]]:
    """The tensors by file, each of a size that stores take; one file at least."""
    found: list[dict[str, Shape]] = [{}]
    held = 0
    for name, shape in shapes.items():
        size = torch.Size(shape).numel() * width
        if found[-1] and held + size > SHARD_BYTES:
            found.append({})
            held = 0
        found[-1][name] = shape
        held += size
    return found
