"""The files that a model may consist of, by their names and sizes."""

import re
from collections.abc import Mapping
from pathlib import PurePosixPath

from windlass.modelfiles.documents import MAX_TOKENIZER_BYTES, is_document, max_bytes
from windlass.modelfiles.refusal import RefusedDocument
from windlass.modelfiles.weights import is_gguf, is_safetensors, is_weights

MAX_FILES = 1000
# S3 takes at most this much in one PUT.
MAX_FILE_BYTES = 5 * 2**30
MAX_TOTAL_BYTES = 2 * 2**40
PATH_LENGTH = 512
_SEGMENT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+@-]*")
_SUFFIXES = frozenset(
    {
        ".safetensors",
        ".gguf",
        ".json",
        ".txt",
        ".model",
        ".tiktoken",
        ".jinja",
        ".md",
        ".pdf",
        ".png",
    }
)
# What a tokenizer reads, it reads whole.
_READ_WHOLE = frozenset({".json", ".txt", ".model", ".tiktoken", ".jinja"})
_BARE_NAMES = frozenset({"LICENSE", "LICENCE", "NOTICE", "COPYING", "USE_POLICY"})
_PICKLES = frozenset({".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".joblib", ".npy"})
_TOKENIZERS = frozenset({"tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt"})
_SHARD = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.(safetensors|gguf)", re.ASCII)


def is_data(path: str) -> bool:
    """Returns True if a file's name is of a kind that models consist of: no code, no pickle."""
    name = PurePosixPath(path)
    return name.suffix.lower() in _SUFFIXES or name.name.upper() in _BARE_NAMES


def check_paths(paths: list[str]) -> None:
    """Raises RefusedDocument unless each path stays in its folder, and is one file, anywhere."""
    if not 1 <= len(paths) <= MAX_FILES:
        raise _refuse(f"A model must have 1 to {MAX_FILES} files.")
    for path in paths:
        check_path(path)
    # Some file systems take `A` and `a` for one name.
    seen = {path.lower() for path in paths}
    if len(seen) != len(paths):
        raise _refuse("Two files have the same path.", reason="duplicate_path")
    for path in seen:
        if any(str(parent) in seen for parent in PurePosixPath(path).parents):
            raise _refuse(f"{path!r} lies below another file.", reason="duplicate_path")


def check_path(path: str) -> None:
    """Raises RefusedDocument for a path that could leave its folder on some system."""
    segments = path.split("/")
    if len(path) > PATH_LENGTH or len(segments) > 8:
        raise _refuse(f"The path {path[:80]!r} is too long.", reason="invalid_path")
    if not all(_SEGMENT.fullmatch(segment) for segment in segments):
        raise _refuse(
            f"{path!r} is not a plain relative path of letters, digits and '._+@-'.",
            reason="invalid_path",
        )


def check_sizes(sizes: Mapping[str, int]) -> None:
    """Raises RefusedDocument for a file, or files together, that no store takes."""
    for path, size in sizes.items():
        if not 0 <= size <= MAX_FILE_BYTES:
            raise _refuse(f"{path!r} has {size} bytes; at most 5 GiB are allowed.")
    if sum(sizes.values()) > MAX_TOTAL_BYTES:
        raise _refuse("The files together exceed 2 TiB.", reason="model_too_large")


def check_model(sizes: Mapping[str, int]) -> None:
    """Raises RefusedDocument unless the files are a complete model of safetensors and data."""
    for path, size in sizes.items():
        _check_kind(path)
        if PurePosixPath(path).suffix.lower() in _READ_WHOLE and size > MAX_TOKENIZER_BYTES:
            raise _refuse(f"{path!r} is too large to be read.")
        if is_document(path) and size > max_bytes(path):
            raise _refuse(f"{path!r} is too large to be read.")
    if "config.json" not in sizes:
        raise _refuse("config.json is missing.", reason="incomplete_model")
    if not sizes.keys() & _TOKENIZERS and not any(path.endswith(".tiktoken") for path in sizes):
        raise _refuse("The tokenizer is missing (tokenizer.json).", reason="incomplete_model")
    if not any(is_weights(path) and "/" not in path for path in sizes):
        raise _refuse("There is no .safetensors and no .gguf file.", reason="incomplete_model")
    _check_form(sizes)
    shards = {found.group(1, 3, 4) for path in sizes if (found := _SHARD.fullmatch(path))}
    for stem, count, suffix in sorted(shards):
        _check_shards(sizes, stem, int(count), suffix)


def _check_kind(path: str) -> None:
    name = PurePosixPath(path)
    if name.suffix.lower() in _PICKLES:
        raise _refuse(
            f"{path!r} may contain a pickle, which runs code when loaded. "
            "Save the weights as safetensors.",
            reason="unsafe_file",
        )
    if name.name == "adapter_config.json":
        raise _refuse(
            f"{path!r}: an adapter cannot be imported as a base model.", reason="unsafe_file"
        )
    if not is_data(path):
        raise _refuse(
            f"{path!r} cannot be part of a model: only safetensors, GGUF, JSON, tokenizer "
            "files and text are accepted.",
            reason="unsafe_file",
        )


def _check_form(sizes: Mapping[str, int]) -> None:
    """Refuses GGUF beside safetensors, and more than one model of it: an engine reads one."""
    found = sorted(path for path in sizes if is_gguf(path))
    if found and any(map(is_safetensors, sizes)):
        raise _refuse(
            f"{found[0]!r} cannot lie beside safetensors: a model has its weights in one form.",
            reason="unsafe_file",
        )
    for path in found:
        _check_gguf_name(path)
    # With the number of parts, of which a model has one.
    models = {_SHARD.sub(r"\1-of-\3", path) for path in found}
    if len(models) > 1 or any("/" in path for path in found):
        raise _refuse(
            f"There are several GGUF models ({', '.join(sorted(models))[:200]}); keep one, at the "
            "top of the folder."
        )


def _check_gguf_name(path: str) -> None:
    if not path.endswith(".gguf"):
        # An engine's agent finds no others.
        raise _refuse(f"{path!r} must end in '.gguf', in lower case.")
    part = _SHARD.fullmatch(path)
    if part and not 1 <= int(part[2]) <= int(part[3]):
        raise _refuse(f"{path!r} cannot be: of {int(part[3])} parts there is no {int(part[2])}.")


def _check_shards(sizes: Mapping[str, int], stem: str, count: int, suffix: str) -> None:
    for number in range(1, min(count, MAX_FILES) + 1):
        name = f"{stem}-{number:05}-of-{count:05}.{suffix}"
        if name not in sizes:
            raise _refuse(f"{name!r} is missing.", reason="incomplete_model")


def _refuse(message: str, *, reason: str = "invalid_manifest") -> RefusedDocument:
    return RefusedDocument(message, reason=reason)
