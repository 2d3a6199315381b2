"""The types of models that the engine and the trainers of this release can load."""

from functools import cache
from pathlib import Path

import msgspec

_FILE = Path(__file__).with_name("architectures.json")


class Architectures(msgspec.Struct, frozen=True):
    """Values of `model_type` by what loads them; made by tools/generate_architectures.py."""

    transformers: str
    generation: tuple[str, ...]
    scoring: tuple[str, ...]


@cache
def known_types() -> Architectures:
    """Returns the types that the pinned transformers knows."""
    return msgspec.json.decode(_FILE.read_bytes(), type=Architectures)
