"""Headers of safetensors, believed only where they describe their file byte by byte."""

import math
import os
from bisect import bisect_right
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec
import torch
import xxhash

from windlass_vllm.refusal import Refused

BLOCK = 4096
"""Bytes of a block. Blocks begin at a tensor's first byte, and a tensor's last may be shorter."""
_LONGEST_HEADER = 100_000_000
_LENGTH = 8
_METADATA = "__metadata__"
DTYPES = {
    "BOOL": torch.bool,
    "U8": torch.uint8,
    "I8": torch.int8,
    "I16": torch.int16,
    "I32": torch.int32,
    "I64": torch.int64,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F32": torch.float32,
    "F64": torch.float64,
}
_Count = Annotated[int, msgspec.Meta(ge=0, le=2**48)]


class _Described(msgspec.Struct, forbid_unknown_fields=True):
    dtype: str
    shape: Annotated[list[_Count], msgspec.Meta(max_length=16)]
    data_offsets: tuple[_Count, _Count]


@dataclass(frozen=True)
class StoredTensor:
    """One tensor of a file: where its bytes and its blocks begin."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    offset: int
    size: int
    first_block: int

    @property
    def blocks(self) -> int:
        """The number of its blocks."""
        return -(-self.size // BLOCK)


@dataclass(frozen=True)
class Shard:
    """A file of safetensors, as its header describes it."""

    name: str
    size: int
    header: bytes
    tensors: tuple[StoredTensor, ...]
    """In the order of their bytes; none is empty."""

    @property
    def blocks(self) -> int:
        """The number of blocks of all its tensors."""
        return sum(tensor.blocks for tensor in self.tensors)

    @property
    def header_digest(self) -> bytes:
        """A hash of the bytes before the first tensor's."""
        return xxhash.xxh3_128_digest(self.header)

    def offset(self, block: int) -> int:
        """Returns where a block begins in the file; that of the number of blocks is its end."""
        if block == self.blocks:
            return self.size
        tensor = self.tensor(block)
        return tensor.offset + (block - tensor.first_block) * BLOCK

    def tensor(self, block: int) -> StoredTensor:
        """Returns the tensor that a block is of."""
        place = bisect_right(self.tensors, block, key=lambda one: one.first_block) - 1
        return self.tensors[place]


def read_shard(path: Path) -> Shard:
    """Reads and judges the header of a regular file; raises Refused."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise Refused("invalid_header", f"{path.name} cannot be read: {error}") from error
    with os.fdopen(descriptor, "rb") as file:
        size = os.fstat(descriptor).st_size
        start = file.read(_LENGTH)
        length = int.from_bytes(start, "little")
        if len(start) < _LENGTH or length > min(_LONGEST_HEADER, size - _LENGTH):
            raise Refused("invalid_header", f"{path.name} is shorter than its header says")
        header = start + file.read(length)
    if len(header) != _LENGTH + length:
        raise Refused("invalid_header", f"{path.name} is cut")
    return Shard(path.name, size, header, _tensors(path.name, header, size))


def _tensors(name: str, header: bytes, size: int) -> tuple[StoredTensor, ...]:
    try:
        raw = msgspec.json.decode(header[_LENGTH:], type=dict[str, msgspec.Raw])
        raw.pop(_METADATA, None)
        decode = msgspec.json.Decoder(_Described).decode
        described = {tensor: decode(value) for tensor, value in raw.items()}
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Refused("invalid_header", f"the header of {name} cannot be read: {error}") from error
    tensors, end, block = [], 0, 0
    for tensor, one in sorted(described.items(), key=lambda item: item[1].data_offsets):
        dtype = DTYPES.get(one.dtype)
        if dtype is None:
            raise Refused("invalid_header", f"{tensor} in {name} is of {one.dtype[:32]}")
        begin, length = one.data_offsets[0], one.data_offsets[1] - one.data_offsets[0]
        # No gaps, no overlaps: every byte of the file is some tensor's.
        if begin != end or length != math.prod(one.shape) * dtype.itemsize:
            raise Refused("invalid_header", f"{tensor} in {name} is not where its header says")
        end += length
        if length:
            place = len(header) + begin
            stored = StoredTensor(tensor, dtype, tuple(one.shape), place, length, block)
            tensors.append(stored)
            block += stored.blocks
    if len(header) + end != size:
        raise Refused("invalid_header", f"the header of {name} is of a file of another size")
    return tuple(tensors)
