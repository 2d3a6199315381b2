"""The content of one version: checked from its first byte to its last, then read in chunks."""

import mmap
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import xxhash

from windlass.weight_versions.codec import decode
from windlass.weight_versions.manifest import WIDTHS, TensorRecord, WeightManifest, chunk_sizes
from windlass.weight_versions.refusals import RefusalReason, WeightsRefused
from windlass.weight_versions.tensors import Octets
from windlass.weight_versions.writing import DATA

_NOTHING: Octets = np.empty(0, np.uint8)


@dataclass(frozen=True, slots=True)
class Piece:
    """A chunk: `size` bytes of its tensor from `start` on, `stored` ones of the file at `place`."""

    record: TensorRecord
    start: int
    size: int
    place: int
    stored: int


class VersionContent:
    """An open version, whose file is mapped: decoded it takes memory for a chunk at a time."""

    def __init__(self, folder: Path, manifest: WeightManifest):
        """Maps its file, which stays readable when its name goes; raises WeightsRefused.

        Nobody may cut the file meanwhile: the process would end by SIGBUS.
        """
        self.manifest = manifest
        try:
            file = os.open(folder / DATA, os.O_RDONLY | os.O_NOFOLLOW)
        except OSError as error:
            message = f"Version {manifest.version} has no content."
            raise WeightsRefused("damaged_content", message) from error
        try:
            self._octets = self._mapped(file)
        finally:
            os.close(file)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._octets = _NOTHING

    def check(self, record: TensorRecord) -> None:
        """Raises WeightsRefused unless a tensor's chunks are what was written, and decode."""
        stored = self._octets[record.offset : record.offset + record.size]
        if xxhash.xxh3_128_hexdigest(stored.data) != record.stored:
            raise WeightsRefused("damaged_content", f"{record.name} is not what was written.")
        if record.codec == "zstd":
            for piece in self.pieces(record):
                self.decoded(piece)

    def pieces(self, record: TensorRecord) -> Iterator[Piece]:
        """The chunks of a tensor that has any, in order."""
        place, start = record.offset, 0
        for stored, size in zip(record.chunks, chunk_sizes(record.nbytes), strict=False):
            yield Piece(record, start, size, place, stored)
            place, start = place + stored, start + size

    def decoded(self, piece: Piece) -> Octets:
        """The bytes of a chunk, or the difference to the parent's; raises WeightsRefused."""
        stored = self._octets[piece.place : piece.place + piece.stored]
        if piece.record.codec == "none":
            return stored
        return decode(stored.tobytes(), WIDTHS[piece.record.dtype], piece.size)

    def _mapped(self, file: int) -> Octets:
        size = os.fstat(file).st_size
        if size != self.manifest.size:
            larger = size > self.manifest.size
            reason: RefusalReason = "oversized_content" if larger else "damaged_content"
            message = f"The content has {size} bytes and not {self.manifest.size}."
            raise WeightsRefused(reason, message)
        if not size:
            return _NOTHING
        return np.frombuffer(mmap.mmap(file, size, prot=mmap.PROT_READ), np.uint8)
