"""The header of a GGUF file: its metadata, and where each tensor lies.

The format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. llama.cpp reads such files
itself; what is refused here never comes to it.
"""

import math
import struct
from collections.abc import Iterator

from windlass.modelfiles.refusal import RefusedDocument
from windlass.modelfiles.weights.facts import TensorFacts

MAGIC = b"GGUF"
# The order of bytes that every machine of ours has, since the first release with 64 bits.
_VERSIONS = (2, 3)
# Vocabularies of 260,000 tokens take 10 MB.
MAX_HEADER_BYTES = 32 * 2**20
_MAX_KEYS, _MAX_TENSORS = 10_000, 100_000
_MAX_NAME, _MAX_KEY, _MAX_DIMENSIONS = 64, 1024, 4
_ALIGNMENT, _MAX_ALIGNMENT = 32, 4096
_UINT32, _STRING, _ARRAY = 4, 8, 9
# Bytes of a value by its type.
_VALUES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
# Types of tensors by their number: the name, weights of a block, bytes of a block (ggml.h).
_TYPES = {
    0: ("F32", 1, 4), 1: ("F16", 1, 2), 2: ("Q4_0", 32, 18), 3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22), 7: ("Q5_1", 32, 24), 8: ("Q8_0", 32, 34), 9: ("Q8_1", 32, 40),
    10: ("Q2_K", 256, 84), 11: ("Q3_K", 256, 110), 12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176), 14: ("Q6_K", 256, 210), 15: ("Q8_K", 256, 292),
    16: ("IQ2_XXS", 256, 66), 17: ("IQ2_XS", 256, 74), 18: ("IQ3_XXS", 256, 98),
    19: ("IQ1_S", 256, 50), 20: ("IQ4_NL", 32, 18), 21: ("IQ3_S", 256, 110),
    22: ("IQ2_S", 256, 82), 23: ("IQ4_XS", 256, 136), 24: ("I8", 1, 1), 25: ("I16", 1, 2),
    26: ("I32", 1, 4), 27: ("I64", 1, 8), 28: ("F64", 1, 8), 29: ("IQ1_M", 256, 56),
    30: ("BF16", 1, 2), 34: ("TQ1_0", 256, 54), 35: ("TQ2_0", 256, 66), 39: ("MXFP4", 32, 17),
}  # fmt: skip


def is_gguf(path: str) -> bool:
    """Returns True if a file is one of GGUF, by its name."""
    return path.lower().endswith(".gguf")


def bits_of(name: str) -> int:
    """The whole bits of a weight of a type of tensors; 0 for a name of none."""
    found = (8 * size // block for known, block, size in _TYPES.values() if known == name)
    return next(found, 0)


def gguf_header_bytes(path: str, prefix: bytes, size: int) -> int:
    """Returns the bytes behind the first ones that hold a header; raises RefusedDocument."""
    if prefix[: len(MAGIC)] != MAGIC:
        raise refused_gguf(path, "it does not begin as a GGUF file does")
    version = int.from_bytes(prefix[len(MAGIC) :], "little")
    if version not in _VERSIONS:
        raise refused_gguf(path, f"its version of GGUF is {version}, and none of 2 and 3")
    return min(size - len(prefix), MAX_HEADER_BYTES)


def check_gguf_header(path: str, header: bytes, size: int) -> TensorFacts:
    """Returns what a header says, which begins behind magic and version.

    Raises RefusedDocument unless its tensors follow one another in a file of `size` bytes.
    """
    reader = _GgufReader(path, header)
    tensors, keys = reader.number("<Q", _MAX_TENSORS), reader.number("<Q", _MAX_KEYS)
    alignment = _ALIGNMENT
    for _ in range(keys):
        key, kind = reader.text(_MAX_KEY), reader.number("<I")
        value = reader.value(kind)
        if key == b"general.alignment":
            alignment = value
    if not 1 <= alignment <= _MAX_ALIGNMENT or alignment & (alignment - 1):
        raise refused_gguf(path, f"its alignment is {alignment}")
    facts, end, padded = TensorFacts(is_gguf=True), 0, 0
    for name, offset, known, length in _tensors(reader, tensors):
        if offset != padded:
            raise refused_gguf(path, f"its tensor {name!r} does not follow the one before")
        end = offset + length
        padded = _padded(end, alignment)
        facts.sizes[known] += length
    plain = len(MAGIC) + 4 + reader.at
    begin = _padded(plain, alignment)
    # A first part may have no tensors, and nothing behind its header.
    least = begin + end if end else plain
    if not least <= size <= begin + padded:
        what = "cut short" if size < least else "longer than its header says"
        raise refused_gguf(path, f"it is {what}, with {size:,} of {begin + end:,} bytes")
    return facts


def _tensors(reader: "_GgufReader", count: int) -> Iterator[tuple[str, int, str, int]]:
    """Yields each tensor's name, offset, type and bytes."""
    for _ in range(count):
        name = reader.text(_MAX_NAME).decode(errors="replace")
        shape = [reader.number("<Q", 2**40) for _ in range(reader.number("<I", _MAX_DIMENSIONS))]
        kind, offset = reader.number("<I"), reader.number("<Q", 2**50)
        if kind not in _TYPES:
            raise refused_gguf(reader.path, f"its tensor {name!r} has the type {kind}")
        known, block, size = _TYPES[kind]
        elements = math.prod(shape)
        if elements >= 2**53 or (shape[0] if shape else 1) % block:
            raise refused_gguf(reader.path, f"its tensor {name!r} has the shape {shape}")
        yield name, offset, known, elements // block * size


class _GgufReader:
    """Reads of a header, each within it."""

    def __init__(self, path: str, header: bytes):
        self.path = path
        self.at = 0
        self._header = header

    def number(self, form: str, most: int = 2**32 - 1) -> int:
        """The next number; raises RefusedDocument for one beyond `most`."""
        found = int(struct.unpack(form, self._take(struct.calcsize(form)))[0])
        if found > most:
            raise refused_gguf(self.path, f"its header has {found:,} where {most:,} is possible")
        return found

    def text(self, longest: int) -> bytes:
        """The next string."""
        return self._take(self.number("<Q", longest))

    def value(self, kind: int) -> int:
        """Passes over a value of a type; returns it where it is a number of 32 bits, else 0."""
        if kind == _UINT32:
            return self.number("<I")
        if kind == _STRING:
            self.text(MAX_HEADER_BYTES)
        elif kind == _ARRAY:
            self._array(self.number("<I"), self.number("<Q", MAX_HEADER_BYTES))
        else:
            self._take(self._size_of(kind))
        return 0

    def _array(self, kind: int, count: int) -> None:
        if kind != _STRING:
            self._take(self._size_of(kind) * count)
            return
        for _ in range(count):
            self.text(MAX_HEADER_BYTES)

    def _size_of(self, kind: int) -> int:
        if kind not in _VALUES:
            raise refused_gguf(self.path, f"its header has a value of the type {kind}")
        return _VALUES[kind]

    def _take(self, count: int) -> bytes:
        begin, self.at = self.at, self.at + count
        if self.at > len(self._header):
            raise refused_gguf(self.path, "it ends within its header, or that is too long")
        return self._header[begin : self.at]


def _padded(size: int, alignment: int) -> int:
    return -(-size // alignment) * alignment


def refused_gguf(path: str, why: str) -> RefusedDocument:
    """The refusal of a damaged file."""
    return RefusedDocument(
        f"{path!r} is damaged: {why}. Download or save it again.", reason="damaged_weights"
    )
