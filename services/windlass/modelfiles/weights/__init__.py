"""Headers of files of weights, checked before anything reads their tensors.

May import the refusal of `windlass.modelfiles`.
"""

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
]


def is_weights(path: str) -> bool:
    """Returns True if a file holds tensors, by its name."""
    return is_safetensors(path) or is_gguf(path)


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
