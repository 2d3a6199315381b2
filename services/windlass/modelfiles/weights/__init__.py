"""Headers of files of weights, checked before anything reads their tensors.

May import the refusal of `windlass.modelfiles`.
"""

from collections.abc import Collection

from windlass.modelfiles.weights import gguf, safetensors
from windlass.modelfiles.weights.facts import TensorFacts
from windlass.modelfiles.weights.gguf import is_gguf
from windlass.modelfiles.weights.safetensors import PREFIX_BYTES, is_safetensors

__all__ = [
    "PREFIX_BYTES",
    "TensorFacts",
    "check_header",
    "header_bytes",
    "is_gguf",
    "is_safetensors",
    "is_weights",
    "loaded",
]
# Those of transformers, by whose name engines know that the others of a folder are copies.
_OWN = ("model.safetensors", "model.safetensors.index.json")


def is_weights(path: str) -> bool:
    """Returns True if a file holds tensors, by its name."""
    return is_safetensors(path) or is_gguf(path)


def loaded(paths: Collection[str]) -> list[str]:
    """Returns the files of tensors that an engine loads of a model's files.

    Mistral's models have the same weights twice, in `consolidated.safetensors` once more.
    """
    weights = [path for path in paths if is_weights(path)]
    if not any(path in _OWN for path in paths):
        return weights
    own = [path for path in weights if path.startswith("model") and "/" not in path]
    return own or weights


def header_bytes(path: str, prefix: bytes, size: int) -> int:
    """Returns the length of the header that follows the first bytes of a file of `size` bytes.

    Of GGUF, which does not say it, the most that it may have. Raises RefusedDocument for a file of
    neither form, or one that ends within its header.
    """
    if is_gguf(path):
        return gguf.gguf_header_bytes(path, prefix, size)
    return safetensors.header_bytes(path, prefix, size)


def check_header(path: str, header: bytes, size: int) -> TensorFacts:
    """Returns what a header says of its tensors.

    Raises RefusedDocument unless these fill a file of `size` bytes.
    """
    if is_gguf(path):
        return gguf.check_gguf_header(path, header, size)
    return safetensors.check_header(path, header, size)
