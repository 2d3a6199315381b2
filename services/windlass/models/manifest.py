"""Manifests: which files a version has, and which an import may bring."""

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from windlass import modelfiles
from windlass.core.errors import InvalidArgument

MAX_FILES = 1000
# S3 takes at most this much in one PUT.
MAX_FILE_BYTES = 5 * 2**30
MAX_TOTAL_BYTES = 2 * 2**40
PATH_LENGTH = 512
_SEGMENT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+@-]*")
_SUFFIXES = frozenset(
    {".safetensors", ".json", ".txt", ".model", ".tiktoken", ".jinja", ".md", ".pdf", ".png"}
)
# What a tokenizer reads, it reads whole.
_READ_WHOLE = frozenset({".json", ".txt", ".model", ".tiktoken", ".jinja"})
_BARE_NAMES = frozenset({"LICENSE", "LICENCE", "NOTICE", "COPYING", "USE_POLICY"})
_PICKLES = frozenset({".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".joblib", ".npy"})
_TOKENIZERS = frozenset({"tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt"})


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
        _check_paths(ordered)
        for file in ordered:
            if not 0 <= file.size <= MAX_FILE_BYTES:
                raise _refuse(f"{file.path!r} has {file.size} bytes; at most 5 GiB are allowed.")
            if len(file.sha256) != 32:
                raise _refuse(f"{file.path!r} has no SHA-256.")
        if sum(file.size for file in ordered) > MAX_TOTAL_BYTES:
            raise _refuse("The files together exceed 2 TiB.", reason="model_too_large")
        return cls(ordered)

    @property
    def size(self) -> int:
        """Size of all files."""
        return sum(file.size for file in self.files)

    @property
    def digest(self) -> str:
        """One SHA-256 over all paths, sizes and digests, in hex."""
        lines = (f"{file.path}\0{file.size}\0{file.sha256.hex()}\n" for file in self.files)
        return hashlib.sha256("".join(lines).encode()).hexdigest()

    def to_json(self) -> list[list[Any]]:
        """The form of the rows."""
        return [[file.path, file.size, file.sha256.hex()] for file in self.files]

    @classmethod
    def from_json(cls, document: list[list[Any]]) -> "Manifest":
        """Inverse of `to_json`."""
        return cls(tuple(ManifestFile(p, b, bytes.fromhex(digest)) for p, b, digest in document))


def safe_path(path: str) -> str:
    """A relative path that stays in its folder on any system; raises InvalidArgument."""
    segments = path.split("/")
    if len(path) > PATH_LENGTH or len(segments) > 8:
        raise _refuse(f"The path {path[:80]!r} is too long.", reason="invalid_path")
    if not all(_SEGMENT.fullmatch(segment) for segment in segments):
        raise _refuse(
            f"{path!r} is not a plain relative path of letters, digits and '._+@-'.",
            reason="invalid_path",
        )
    return path


def is_data(path: str) -> bool:
    """True if a file's name is of a kind that models consist of: neither code nor pickle."""
    name = PurePosixPath(path)
    return name.suffix.lower() in _SUFFIXES or name.name.upper() in _BARE_NAMES


def check_import(manifest: Manifest) -> None:
    """Refuses what is not a complete model of safetensors and data; raises InvalidArgument."""
    names = set()
    for file in manifest.files:
        path = PurePosixPath(file.path)
        names.add(file.path)
        suffix = path.suffix.lower()
        if suffix in _PICKLES:
            raise _refuse(
                f"{file.path!r} may contain a pickle, which runs code when loaded. "
                "Save the weights as safetensors.",
                reason="unsafe_file",
            )
        if path.name == "adapter_config.json":
            raise _refuse(
                f"{file.path!r}: an adapter cannot be imported as a base model.",
                reason="unsafe_file",
            )
        if not is_data(file.path):
            raise _refuse(
                f"{file.path!r} cannot be part of a model: only safetensors, JSON, tokenizer "
                "files and text are accepted.",
                reason="unsafe_file",
            )
        if suffix in _READ_WHOLE and file.size > modelfiles.MOST_BYTES:
            raise _refuse(f"{file.path!r} is too large to be read.")
    if "config.json" not in names:
        raise _refuse("config.json is missing.", reason="incomplete_model")
    if not names & _TOKENIZERS and not any(name.endswith(".tiktoken") for name in names):
        raise _refuse("The tokenizer is missing (tokenizer.json).", reason="incomplete_model")
    if not any(name.endswith(".safetensors") and "/" not in name for name in names):
        raise _refuse("There is no .safetensors file.", reason="incomplete_model")


def documents(manifest: Manifest) -> list[ManifestFile]:
    """The JSON files that say how the model is loaded, which `check_document` must pass."""
    return [file for file in manifest.files if modelfiles.is_document(file.path)]


def check_document(manifest: Manifest, path: str, content: bytes) -> None:
    """Refuses JSON that names code or files from elsewhere, or more than the weights hold.

    Raises InvalidArgument.
    """
    known = {file.path for file in manifest.files}
    weights = sum(file.size for file in manifest.files if file.path.endswith(".safetensors"))
    try:
        modelfiles.check_document(path, content, known=known, weights=weights)
    except modelfiles.RefusedDocument as refusal:
        raise _refuse(refusal.message, reason=refusal.reason) from refusal


def has_scoring_head(config: bytes) -> bool:
    """Returns True if a config.json that passed `check_document` is of a sequence classifier."""
    architectures = json.loads(config).get("architectures") or ()
    return any(str(name).endswith("ForSequenceClassification") for name in architectures)


def _check_paths(files: tuple[ManifestFile, ...]) -> None:
    if not 1 <= len(files) <= MAX_FILES:
        raise _refuse(f"A manifest must have 1 to {MAX_FILES} files.")
    # Some file systems take `A` and `a` for one name.
    seen = {safe_path(file.path).lower() for file in files}
    if len(seen) != len(files):
        raise _refuse("Two files have the same path.", reason="duplicate_path")
    for path in seen:
        if any(str(parent) in seen for parent in PurePosixPath(path).parents):
            raise _refuse(f"{path!r} lies below another file.", reason="duplicate_path")


def _refuse(message: str, *, reason: str = "invalid_manifest") -> InvalidArgument:
    return InvalidArgument(message, reason=reason, param="files")
