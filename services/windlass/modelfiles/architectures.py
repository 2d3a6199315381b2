"""The types of models that the engine and the trainers of this release can load."""

from difflib import get_close_matches
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


def unknown_type(model_type: str) -> str:
    """A warning about a type that nothing of this release loads; empty for others and for none."""
    known = known_types()
    if not model_type or model_type in {*known.generation, *known.scoring}:
        return ""
    near = get_close_matches(model_type, known.generation, n=1)
    meant = f" Did you mean {near[0]!r}?" if near else ""
    return (
        f"Models of type {model_type!r} are known neither to the built-in engine nor to the "
        f"trainers, which load what Transformers {known.transformers} knows.{meant} Other "
        "engines may serve it, and only images of your own that know the type can train it."
    )
