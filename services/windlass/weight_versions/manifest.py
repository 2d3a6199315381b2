"""Manifests: which tensors a version has, and where their bytes lie."""

import hashlib
import math
from collections.abc import Iterable
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from windlass.weight_versions.refusals import WeightsRefused

BASE = 0
"""The version of a model as it was loaded."""
MANIFEST_BYTES = 64 * 2**20
# Of decoded bytes, except the last of a tensor: what is in memory beside the weights, and small
# enough that it is in a core's cache when it is read again.
CHUNK_BYTES = 2**20
# That zstd may add to what it cannot make smaller.
CHUNK_SLACK = 2**13
# In bytes, by the names of safetensors.
WIDTHS = {
    **{"F32": 4, "BF16": 2, "F16": 2},
    **{"F8_E4M3": 1, "F8_E5M2": 1, "I8": 1, "U8": 1},
}

Version = Annotated[int, Meta(ge=1, lt=2**53)]
Digest = Annotated[str, Meta(pattern="^[0-9a-f]{32}$")]
Sha256Hex = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
Count = Annotated[int, Meta(ge=0, lt=2**53)]
Encoding = Literal["full", "xor", "same"]
Codec = Literal["none", "zstd"]


class TensorRecord(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One tensor of a version; `digest` is the XXH3 of its bytes once it is in place.

    `chunks` are the stored sizes of its chunks, one behind the other from `offset` on, and
    `stored` is their XXH3.
    """

    name: Annotated[str, Meta(min_length=1, max_length=512)]
    dtype: Literal["F32", "BF16", "F16", "F8_E4M3", "F8_E5M2", "I8", "U8"]
    shape: Annotated[tuple[Count, ...], Meta(max_length=8)]
    encoding: Encoding
    codec: Codec
    offset: Count
    chunks: tuple[Count, ...]
    stored: Digest
    digest: Digest

    @property
    def nbytes(self) -> int:
        """Bytes of the tensor itself."""
        return math.prod(self.shape) * WIDTHS[self.dtype]

    @property
    def size(self) -> int:
        """Bytes that it takes in the file."""
        return sum(self.chunks)


class WeightManifest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The manifest of a version; a full one has no parent.

    `weights`, `parent_weights` and `base_weights` are digests of all tensors of the version, of
    the one that it is a delta against, and of the model as it was loaded.
    """

    format: Literal["windlass.weights/1"] = "windlass.weights/1"
    version: Version
    parent: Count | None
    weights: Sha256Hex
    parent_weights: Sha256Hex | None
    base_weights: Sha256Hex
    size: Count
    sha256: Sha256Hex
    tensors: Annotated[tuple[TensorRecord, ...], Meta(min_length=1, max_length=100_000)]

    @classmethod
    def read(cls, content: bytes) -> "WeightManifest":
        """Decodes and checks a manifest; raises WeightsRefused `invalid_manifest`."""
        if len(content) > MANIFEST_BYTES:
            raise _invalid(f"it has more than {MANIFEST_BYTES} bytes")
        try:
            manifest = msgspec.json.decode(content, type=cls)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise _invalid(str(error)) from error
        manifest.check()
        return manifest

    def content(self) -> bytes:
        """The bytes of its file."""
        return msgspec.json.encode(self)

    def check(self) -> None:
        """Raises WeightsRefused `invalid_manifest` for one that contradicts itself."""
        if (self.parent is None) != (self.parent_weights is None):
            raise _invalid("parent and parent_weights come together")
        if self.parent is not None and self.parent >= self.version:
            raise _invalid(f"version {self.version} cannot come after {self.parent}")
        if len({record.name for record in self.tensors}) < len(self.tensors):
            raise _invalid("a tensor comes twice")
        end = 0
        for record in self.tensors:
            self._check_record(record, end)
            end += record.size
        if end != self.size:
            raise _invalid(f"its tensors take {end} bytes and not {self.size}")
        if weights_digest(self.tensors) != self.weights:
            raise _invalid("its digest is not that of its tensors")

    def _check_record(self, record: TensorRecord, end: int) -> None:
        if record.offset != end:
            raise _invalid(f"{record.name} does not begin where the one before it ends")
        if (record.encoding == "full") != (self.parent is None):
            raise _invalid(f"{record.name} is {record.encoding}")
        expected = [] if record.encoding == "same" else chunk_sizes(record.nbytes)
        if len(record.chunks) != len(expected):
            raise _invalid(f"{record.name} has {len(record.chunks)} chunks, not {len(expected)}")
        for stored, size in zip(record.chunks, expected, strict=True):
            fits = stored == size if record.codec == "none" else 0 < stored <= size + CHUNK_SLACK
            if not fits:
                raise _invalid(f"a chunk of {record.name} has {stored} bytes for {size}")


def chunk_sizes(nbytes: int) -> list[int]:
    """Decoded bytes of each chunk of a tensor."""
    whole, rest = divmod(nbytes, CHUNK_BYTES)
    if whole > MANIFEST_BYTES:
        raise _invalid(f"a tensor of {nbytes} bytes")
    return [CHUNK_BYTES] * whole + ([rest] if rest else [])


def weights_digest(records: Iterable[TensorRecord]) -> str:
    """SHA-256 over names, types, shapes and digests: the same for the same weights."""
    hasher = hashlib.sha256()
    for record in sorted(records, key=lambda record: record.name):
        shape = ",".join(map(str, record.shape))
        hasher.update(f"{record.name}\0{record.dtype}\0{shape}\0{record.digest}\n".encode())
    return hasher.hexdigest()


def _invalid(why: str) -> WeightsRefused:
    return WeightsRefused("invalid_manifest", f"The manifest is refused: {why}.")
