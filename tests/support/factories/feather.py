"""A model of a kilobyte, which is complete and is never loaded."""

import json
import struct
from pathlib import Path


def weights(size: int = 1000) -> bytes:
    """Returns a safetensors file of one tensor of `size` bytes."""
    tensor = {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}
    header = json.dumps({"w": tensor}).encode()
    return struct.pack("<Q", len(header)) + header + b"w" * size


FEATHER = {
    "config.json": b'{"model_type": "llama"}',
    "tokenizer.json": b"{}",
    "model.safetensors": weights(),
}


def make_feather(folder: Path) -> Path:
    """Writes the model into a folder, which it makes, and returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in FEATHER.items():
        (folder / name).write_bytes(content)
    return folder
