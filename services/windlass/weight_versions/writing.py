"""Writes a version into a folder, its manifest last."""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import xxhash

from windlass.weight_versions.codec import encode
from windlass.weight_versions.manifest import (
    WIDTHS,
    Codec,
    Encoding,
    TensorRecord,
    WeightManifest,
    weights_digest,
)
from windlass.weight_versions.snapshot import WeightSnapshot
from windlass.weight_versions.tensors import Octets, TensorBytes, Weights, chunks

DATA, MANIFEST = "weights.bin", "manifest.json"


class DeltaTooLarge(Exception):
    """A delta that is not worth its while."""


@dataclass(frozen=True, kw_only=True)
class VersionParent:
    """The version that a delta is against; `bound` are the bytes that the delta may have."""

    version: int
    weights: str
    bound: int


def write_version(
    folder: Path,
    version: int,
    weights: Weights,
    snapshot: WeightSnapshot,
    *,
    base_weights: str | None,
    parent: VersionParent | None,
    codec: Codec,
) -> WeightManifest:
    """Writes `weights` in full, or what differs from the snapshot, which then holds them.

    Raises DeltaTooLarge. One chunk is in memory at a time. Without `base_weights` these are them.
    """
    with _new(folder / DATA) as file:
        writer = _Writer(file, snapshot, parent, codec if parent else "none")
        records = tuple(writer.write(name, weights[name]) for name in sorted(weights))
        _sync(file)
    digest = weights_digest(records)
    manifest = WeightManifest(
        version=version,
        parent=parent.version if parent else None,
        weights=digest,
        parent_weights=parent.weights if parent else None,
        base_weights=base_weights or digest,
        size=writer.size,
        sha256=writer.sha256.hexdigest(),
        tensors=records,
    )
    manifest.check()
    with _new(folder / MANIFEST) as file:
        file.write(manifest.content())
        _sync(file)
    return manifest


class _Writer:
    def __init__(
        self, file: BinaryIO, snapshot: WeightSnapshot, parent: VersionParent | None, codec: Codec
    ):
        self._file = file
        self._snapshot = snapshot
        self._bound = parent.bound if parent else None
        self._codec: Codec = codec
        self.sha256 = hashlib.sha256()
        self.size = 0

    def write(self, name: str, tensor: TensorBytes) -> TensorRecord:
        offset = self.size
        stored, digest = xxhash.xxh3_128(), xxhash.xxh3_128()
        encoding: Encoding = "full" if self._bound is None else "xor"
        if encoding == "xor" and self._snapshot.holds(name, tensor):
            encoding = "same"
        sizes: list[int] = []
        for start, content in chunks(tensor):
            digest.update(content.data)
            if encoding == "same":
                continue
            part = self._part(name, start, content, WIDTHS[tensor.dtype])
            stored.update(part)
            self.sha256.update(part)
            self._file.write(part)
            sizes.append(len(part))
            self.size += len(part)
            if self._bound is not None and self.size > self._bound:
                raise DeltaTooLarge
        return TensorRecord(
            name=name,
            dtype=tensor.dtype,  # type: ignore[arg-type]  # what is read is checked
            shape=tensor.shape,
            encoding=encoding,
            codec=self._codec,
            offset=offset,
            chunks=tuple(sizes),
            stored=stored.hexdigest(),
            digest=digest.hexdigest(),
        )

    def _part(self, name: str, start: int, content: Octets, width: int) -> memoryview | bytes:
        if self._bound is None:
            self._snapshot.write(name, start, content)
            return content.data
        difference = np.bitwise_xor(self._snapshot.read(name, start, content.nbytes), content)
        self._snapshot.write(name, start, content)
        if self._codec == "none":
            return difference.data
        return encode(difference, width)


def _new(path: Path) -> BinaryIO:
    # Weights are for their owner alone, whatever the umask.
    return os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb")


def _sync(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())
