"""Base models as their files describe them, before anything loads them."""

import json
from pathlib import Path
from typing import Any

from windlass.modelfiles import (
    PREFIX_BYTES,
    RefusedDocument,
    TensorFacts,
    check_header,
    header_bytes,
    loaded,
)
from windlass.modelfiles.footprint import text_config
from windlass.tuning_api.trainers.records import TrainableModel

_CONFIG = "config.json"
_MAX_BYTES = 2**20
_WIDTHS = {"F64": 8, "F32": 4, "BF16": 2, "F16": 2}


class UnreadableModel(ValueError):
    """A folder that holds no model whose configuration says what it takes."""


def described(name: str, folder: Path, *, max_rank: int) -> TrainableModel:
    """The model of a folder; raises UnreadableModel."""
    try:
        with (folder / _CONFIG).open("rb") as file:
            config = json.loads(file.read(_MAX_BYTES))
    except (OSError, ValueError) as error:
        raise UnreadableModel(f"{folder} has no {_CONFIG} that can be read: {error}") from error
    if not isinstance(config, dict):
        raise UnreadableModel(f"{folder / _CONFIG} is no configuration of a model")
    if not any(folder.glob("*.safetensors")):
        raise UnreadableModel(f"{folder} has no weights in files of safetensors")
    text = text_config(config)
    return TrainableModel(
        name=name,
        max_context_length=_number(text, "max_position_embeddings", folder),
        max_rank=max_rank,
        vocabulary_size=_number(text, "vocab_size", folder),
        tokenizer_id=str(folder),
        architecture=str(config.get("model_type", "")),
    )


def parameters(folder: Path) -> int:
    """The number of a model's parameters, by the headers of its files; raises UnreadableModel."""
    facts = TensorFacts()
    try:
        for name in loaded(sorted(path.name for path in folder.glob("*.safetensors"))):
            size = (folder / name).stat().st_size
            with (folder / name).open("rb") as file:
                length = header_bytes(name, file.read(PREFIX_BYTES), size)
                facts.add(check_header(name, file.read(length), size))
    except (OSError, RefusedDocument) as error:
        raise UnreadableModel(f"{folder} has weights that cannot be read: {error}") from error
    # What is no float is not trained: who begins to is told so.
    return sum(size // _WIDTHS.get(dtype, 1) for dtype, size in facts.sizes.items())


def _number(text: Any, key: str, folder: Path) -> int:
    value = text.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise UnreadableModel(f"{folder / _CONFIG} has no {key}")
    return value
