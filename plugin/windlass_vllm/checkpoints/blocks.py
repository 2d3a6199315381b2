"""Hashes of blocks, and the bytes of tensors that they are of.

Xxh3 of 64 bits: 8 bytes for 4 KiB are 0.2 % of a model to keep. What changed is missed once in
2**64 changed blocks, and whoever could aim at that would spoil a checkpoint of their own.
"""

import ctypes
from array import array
from collections.abc import Iterable, Iterator

import torch
import xxhash

from windlass_vllm.checkpoints.shards import BLOCK

CHUNK = 256 * BLOCK
_KIND = "Q"


def hashes_of(content: memoryview) -> "array[int]":
    """Returns the hash of each block of a tensor's bytes."""
    digest = xxhash.xxh3_64_intdigest
    return array(_KIND, [digest(content[at : at + BLOCK]) for at in range(0, len(content), BLOCK)])


def from_bytes(content: bytes) -> "array[int]":
    """Returns the hashes that were kept as bytes."""
    hashes = array(_KIND)
    hashes.frombytes(content)
    return hashes


def differing(new: "array[int]", old: "array[int]") -> list[int]:
    """Returns the places at which two arrays of one length differ."""
    if not new:
        return []
    one, other = (torch.frombuffer(values, dtype=torch.int64) for values in (new, old))
    return [int(place) for place in (one != other).nonzero().flatten().tolist()]


def runs(places: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yields ascending places as pairs of the first of a run and their number."""
    first = count = 0
    for place in places:
        if count and place == first + count:
            count += 1
            continue
        if count:
            yield first, count
        first, count = place, 1
    if count:
        yield first, count


def pieces(tensor: torch.Tensor, begin: int, end: int) -> Iterator[memoryview]:
    """Yields a range of a tensor's bytes, in pieces of whole blocks up to CHUNK.

    A piece may be the tensor's own memory, and is good until the next is asked for.
    """
    flat = tensor.detach().reshape(-1).view(torch.uint8)
    for at in range(begin, end, CHUNK):
        piece = flat[at : min(at + CHUNK, end)].cpu().contiguous()
        yield memoryview((ctypes.c_ubyte * piece.numel()).from_address(piece.data_ptr())).cast("B")
