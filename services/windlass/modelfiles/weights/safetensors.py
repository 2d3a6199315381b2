"""The header of a safetensors file, which says how long the file is and where each tensor lies.

The format: https://github.com/huggingface/safetensors#format.
"""

import math
import re
from collections.abc import Iterator
from typing import Annotated

import msgspec

from windlass.modelfiles.refusal import RefusedDocument
from windlass.modelfiles.weights.facts import TensorFacts

# The length of the header, as a little-endian integer.
PREFIX_BYTES = 8
# The word that a pointer of Git LFS begins with.
_LFS = b"version "
# The format allows 100 MB; a header of 100,000 tensors takes 15.
_MAX_HEADER_BYTES = 32 * 2**20
_MAX_DIMENSIONS = 64
_METADATA = "__metadata__"
_BITS = (
    {"F4": 4, "F6_E2M3": 6, "F6_E3M2": 6}
    | dict.fromkeys(("BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3", "F8_E8M0"), 8)
    | dict.fromkeys(("F8_E4M3FNUZ", "F8_E5M2FNUZ"), 8)
    | dict.fromkeys(("I16", "U16", "F16", "BF16"), 16)
    | dict.fromkeys(("I32", "U32", "F32"), 32)
    | dict.fromkeys(("I64", "U64", "F64", "C64"), 64)
)
# Weights that are packed into integers: of AWQ and GPTQ, of compressed-tensors, of bitsandbytes.
_PACKED = re.compile(r"(.*\.)?(qweight|weight_packed)|.*\.quant_state\.bitsandbytes__\w+")
_Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class _Tensor(msgspec.Struct):
    dtype: str
    shape: Annotated[list[_Count], msgspec.Meta(max_length=_MAX_DIMENSIONS)]
    data_offsets: tuple[_Count, _Count]


_HEADER = msgspec.json.Decoder(dict[str, msgspec.Raw])
_WORDS = msgspec.json.Decoder(dict[str, str] | None)
_TENSOR = msgspec.json.Decoder(_Tensor)


def is_safetensors(path: str) -> bool:
    """Returns True if a file is one of safetensors, by its name."""
    return path.lower().endswith(".safetensors")


def header_bytes(path: str, prefix: bytes, size: int) -> int:
    """Returns the length of the header that follows the first bytes of a file of `size` bytes.

    Raises RefusedDocument for a file that is no safetensors, or ends within its header.
    """
    if len(prefix) < PREFIX_BYTES:
        raise _damaged(path, f"it has only {size} bytes")
    if prefix.startswith(_LFS):
        raise _damaged(path, "it is a pointer of Git LFS, and not the weights")
    length = int.from_bytes(prefix[:PREFIX_BYTES], "little")
    if length > _MAX_HEADER_BYTES:
        raise _damaged(path, "it does not begin with the header of a safetensors file")
    if PREFIX_BYTES + length > size:
        raise _damaged(path, f"it ends after {size:,} bytes, within its header")
    return length


def check_header(path: str, header: bytes, size: int) -> TensorFacts:
    """Returns what a header says of its tensors.

    Raises RefusedDocument unless these fill a file of `size` bytes.
    """
    begin, end = PREFIX_BYTES + len(header), 0
    try:
        entries = _HEADER.decode(header)
        _WORDS.decode(entries.pop(_METADATA, b"{}"))
        tensors = sorted(_spans(path, entries))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _damaged(path, "its header cannot be read") from error
    facts = TensorFacts()
    for first, last, name, dtype in tensors:
        if first != end:
            raise _damaged(path, f"its tensor {name[:80]!r} does not follow the one before")
        end = last
        facts.sizes[dtype] += last - first
        facts.is_packed |= _PACKED.fullmatch(name) is not None
    if begin + end != size:
        what = "cut short" if begin + end > size else "longer than its header says"
        raise _damaged(path, f"it is {what}, with {size:,} of {begin + end:,} bytes")
    return facts


def _spans(path: str, entries: dict[str, msgspec.Raw]) -> Iterator[tuple[int, int, str, str]]:
    """Yields where each tensor begins and ends, its name and its type."""
    for name, entry in entries.items():
        tensor = _TENSOR.decode(entry)
        first, last = tensor.data_offsets
        bits = _BITS.get(tensor.dtype)
        if bits is None:
            raise _damaged(path, f"its tensor {name[:80]!r} has the type {tensor.dtype[:20]!r}")
        if math.prod(tensor.shape) * bits != (last - first) * 8:
            raise _damaged(path, f"its tensor {name[:80]!r} is not as long as its shape says")
        yield first, last, name, tensor.dtype


def _damaged(path: str, why: str) -> RefusedDocument:
    return RefusedDocument(
        f"{path!r} is damaged: {why}. Download or save it again.", reason="damaged_weights"
    )
