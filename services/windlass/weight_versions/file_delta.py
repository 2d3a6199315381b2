"""A file of safetensors as its difference to another one of the same header.

Behind a mark come its chunks, each with its stored length before it, in four bytes; one of length 0
is the parent's. Which chunks there are follows from the header that both files have.
"""

import asyncio
import hashlib
import struct
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import BinaryIO

import msgspec
import numpy as np

from windlass.weight_versions.codec import decode, encode
from windlass.weight_versions.manifest import CHUNK_SLACK, WIDTHS, chunk_sizes
from windlass.weight_versions.refusals import WeightsRefused
from windlass.weight_versions.writing import DeltaTooLarge

MARK = b"windlass.delta/1"
_LENGTH = struct.Struct("<I")
# The length of the header, as safetensors has it, and the longest that is read.
_PREFIX_BYTES, _HEADER_BYTES = 8, 32 * 2**20


class _PlacedTensor(msgspec.Struct):
    dtype: str
    data_offsets: tuple[int, int]


_ENTRIES = msgspec.json.Decoder(dict[str, msgspec.Raw])
_TENSOR = msgspec.json.Decoder(_PlacedTensor)


@dataclass(frozen=True)
class FileDelta:
    """The bytes of a delta, and the SHA-256 of its parent and of the file that it makes of it."""

    size: int
    parent: bytes
    child: bytes


def write_delta(
    parent: BinaryIO, child: BinaryIO, out: BinaryIO, *, size: int, bound: int
) -> FileDelta:
    """Writes what differs between two files of `size` bytes, with one chunk in memory at a time.

    Raises DeltaTooLarge above `bound` bytes, and WeightsRefused for a file that is cut, is no
    safetensors, or has another header than its parent.
    """
    header = _exactly(parent, _PREFIX_BYTES)
    header += _exactly(parent, _header_bytes(header, size))
    if _exactly(child, len(header)) != header:
        raise WeightsRefused("wrong_parent", "The parent has another header.")
    before, after = hashlib.sha256(header), hashlib.sha256(header)
    written = out.write(MARK)
    for length, width in _chunks(header, size):
        old, new = _exactly(parent, length), _exactly(child, length)
        before.update(old)
        after.update(new)
        stored = b"" if old == new else encode(_xor(old, new), width)
        written += out.write(_LENGTH.pack(len(stored))) + out.write(stored)
        if written > bound:
            raise DeltaTooLarge
    return FileDelta(written, before.digest(), after.digest())


async def applied_delta(
    parent: AsyncIterator[bytes], delta: AsyncIterator[bytes], *, size: int
) -> AsyncIterator[bytes]:
    """Yields the file that a delta makes of its parent, which has `size` bytes as the file has.

    A chunk of each is in memory at a time. Raises WeightsRefused for a delta that is damaged, cut,
    or longer than the file has chunks; compare the digest of what comes, too.
    """
    old, told = _PiecedStream(parent), _PiecedStream(delta)
    if await told.take(len(MARK)) != MARK:
        raise WeightsRefused("damaged_content", "It does not begin as a delta does.")
    header = await old.take(_PREFIX_BYTES)
    header += await old.take(_header_bytes(header, size))
    yield header
    for length, width in _chunks(header, size):
        (stored,) = _LENGTH.unpack(await told.take(_LENGTH.size))
        if stored > length + CHUNK_SLACK:
            words = f"A chunk of {length} bytes has {stored}."
            raise WeightsRefused("oversized_content", words)
        content = await old.take(length)
        if stored:
            content = await asyncio.to_thread(_changed, content, await told.take(stored), width)
        yield content
    if not await told.has_ended():
        raise WeightsRefused("oversized_content", "The delta goes on behind its last chunk.")


class _PiecedStream:
    """A stream that is read in pieces of given lengths."""

    def __init__(self, parts: AsyncIterator[bytes]):
        self._parts = parts
        self._held = bytearray()

    async def take(self, length: int) -> bytes:
        """The next so many bytes; raises WeightsRefused where the stream ends before."""
        while len(self._held) < length:
            try:
                self._held += await anext(self._parts)
            except StopAsyncIteration:
                raise WeightsRefused("damaged_content", "The content is cut.") from None
        taken = bytes(self._held[:length])
        del self._held[:length]
        return taken

    async def has_ended(self) -> bool:
        return not self._held and await anext(self._parts, None) is None


def _chunks(header: bytes, size: int) -> Iterator[tuple[int, int]]:
    """Yields the bytes of each chunk behind a header, and of its elements."""
    for width, spans in groupby(_spans(header, size), key=lambda span: span[1]):
        for length in chunk_sizes(sum(span[0] for span in spans)):
            yield length, width


def _spans(header: bytes, size: int) -> list[tuple[int, int]]:
    """The bytes of each tensor in its place, and of its elements.

    A header that does not say it has one span of single bytes: the same for whoever reads it.
    """
    whole = [(size - len(header), 1)]
    try:
        entries = _ENTRIES.decode(header[_PREFIX_BYTES:])
        entries.pop("__metadata__", None)
        tensors = sorted(
            (*one.data_offsets, WIDTHS.get(one.dtype, 1))
            for one in map(_TENSOR.decode, entries.values())
        )
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return whole
    end = 0
    for first, last, width in tensors:
        if first != end or last < first or (last - first) % width:
            return whole
        end = last
    if len(header) + end != size:
        return whole
    return [(last - first, width) for first, last, width in tensors]


def _header_bytes(prefix: bytes, size: int) -> int:
    length = int.from_bytes(prefix, "little")
    if length > min(_HEADER_BYTES, size - _PREFIX_BYTES):
        raise WeightsRefused("damaged_content", "The parent is no file of safetensors.")
    return length


def _exactly(file: BinaryIO, length: int) -> bytes:
    content = file.read(length)
    if len(content) != length:
        raise WeightsRefused("damaged_content", "A file is cut.")
    return content


def _xor(one: bytes, other: bytes) -> "np.typing.NDArray[np.uint8]":
    return np.bitwise_xor(np.frombuffer(one, np.uint8), np.frombuffer(other, np.uint8))


def _changed(content: bytes, stored: bytes, width: int) -> bytes:
    difference = decode(stored, width, len(content))
    return np.bitwise_xor(np.frombuffer(content, np.uint8), difference).tobytes()
