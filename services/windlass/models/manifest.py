"""Manifests: which files a version has, and which an import may bring."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any

from windlass import modelfiles
from windlass.core.errors import InvalidArgument
from windlass.modelfiles.encoders import embedding
from windlass.modelfiles.footprint import Footprint, footprint

# Real ones are shorter.
TYPE_LENGTH = 64


@dataclass(frozen=True, slots=True)
class ManifestFile:
    """One file: relative path, bytes, raw SHA-256."""

    path: str
    size: int
    sha256: bytes


@dataclass(frozen=True, slots=True)
class Manifest:
    """The files of a version, sorted by path."""

    files: tuple[ManifestFile, ...]

    @classmethod
    def of(cls, files: Iterable[ManifestFile]) -> "Manifest":
        """Sorts and checks paths, sizes and digests; raises InvalidArgument."""
        ordered = tuple(sorted(files, key=lambda file: file.path))
        with refused():
            modelfiles.check_paths([file.path for file in ordered])
            modelfiles.check_sizes({file.path: file.size for file in ordered})
        for file in ordered:
            if len(file.sha256) != 32:
                raise InvalidArgument(
                    f"{file.path!r} has no SHA-256.", reason="invalid_manifest", param="files"
                )
        return cls(ordered)

    @property
    def size(self) -> int:
        """Size of all files."""
        return sum(file.size for file in self.files)

    @property
    def digest(self) -> str:
        """SHA-256 over all paths, sizes and digests, in hex."""
        lines = (f"{file.path}\0{file.size}\0{file.sha256.hex()}\n" for file in self.files)
        return hashlib.sha256("".join(lines).encode()).hexdigest()

    def to_json(self) -> list[list[Any]]:
        """The form of the rows."""
        return [[file.path, file.size, file.sha256.hex()] for file in self.files]

    @classmethod
    def from_json(cls, document: list[list[Any]]) -> "Manifest":
        """Inverse of `to_json`."""
        return cls(tuple(ManifestFile(p, b, bytes.fromhex(digest)) for p, b, digest in document))


@contextmanager
def refused() -> Iterator[None]:
    """Turns the refusal of a file into InvalidArgument."""
    try:
        yield
    except modelfiles.RefusedDocument as refusal:
        raise InvalidArgument(refusal.message, reason=refusal.reason, param="files") from refusal


def check_import(manifest: Manifest) -> None:
    """Refuses what is not a complete model of safetensors and data; raises InvalidArgument."""
    with refused():
        modelfiles.check_model({file.path: file.size for file in manifest.files})


def documents(manifest: Manifest) -> list[ManifestFile]:
    """The JSON files that say how the model is loaded, which `check_document` must pass."""
    return [file for file in manifest.files if modelfiles.is_document(file.path)]


def tensor_files(manifest: Manifest) -> list[ManifestFile]:
    """The files that hold tensors, whose headers `modelfiles.check_header` must pass."""
    return [file for file in manifest.files if modelfiles.is_weights(file.path)]


def check_document(manifest: Manifest, path: str, content: bytes) -> None:
    """Refuses JSON that names code or files from elsewhere, or more than the weights hold.

    Raises InvalidArgument.
    """
    known = {file.path for file in manifest.files}
    weights = sum(file.size for file in tensor_files(manifest))
    with refused():
        modelfiles.check_document(path, content, known=known, weights=weights)


def footprint_of(
    config: dict[str, Any], manifest: Manifest, weight_width: int = 0
) -> Footprint | None:
    """Returns what a model takes of devices' memory; None where config.json says too little."""
    sizes = {file.path: file.size for file in manifest.files}
    weights = sum(sizes[path] for path in modelfiles.loaded(sizes))
    try:
        return footprint(config, weights, weight_width)
    except ValueError:
        return None


def tells_pooling(path: str) -> bool:
    """Returns True for the documents that `makes_vectors` reads."""
    return path in (embedding.MODULES, "config.json") or embedding.is_step(path)


def makes_vectors(config: dict[str, Any], documents: Mapping[str, bytes]) -> bool:
    """Returns True for an embedder by its documents, which passed `check_document`.

    Raises InvalidArgument for one that makes vectors in a way that no engine knows.
    """
    with refused():
        return embedding.pooling_of(config, documents, documents.__getitem__) is not None


def type_of(config: dict[str, Any]) -> str:
    """The `model_type` of such a config.json, as far as it can be stored and shown."""
    shown = (
        one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in config["model_type"]
    )
    return "".join(islice(shown, TYPE_LENGTH))
