"""The documents of a model folder by their names, and what is asked of each."""

import json
import re
from collections.abc import Collection
from pathlib import PurePosixPath
from typing import Any

import msgspec

from windlass.modelfiles import sizes, values
from windlass.modelfiles.encoders.embedding import (
    MODULES,
    MODULES_BYTES,
    STEP_BYTES,
    check_modules,
    is_classifier,
    is_step,
)
from windlass.modelfiles.encoders.reranking import activation_of
from windlass.modelfiles.refusal import RefusedDocument

_MAX_BYTES = 32 * 2**20
# Of a file that is read whole: vocabularies of 260,000 tokens take 33 MB.
MAX_TOKENIZER_BYTES = 96 * 2**20
_TOKENIZER = re.compile(r"tokenizer(\..*)?\.json")
_VERSIONED = re.compile(r"tokenizer\.[0-9]+(\.[0-9]+)*\.json")
_TOKENIZER_CONFIG = "tokenizer_config.json"
_ADAPTER_CONFIG = "adapter_config.json"
_TOKENS = "special_tokens_map.json"
_INDEX = ".index.json"
# PEFT imports what this names.
_MEGATRON = (None, "megatron.core")


class _Vocabulary(msgspec.Struct, frozen=True):
    vocab: msgspec.Raw = msgspec.Raw(b"{}")
    merges: msgspec.Raw = msgspec.Raw(b"[]")


class _Tokenizer(msgspec.Struct):
    model: _Vocabulary = _Vocabulary()
    added_tokens: msgspec.Raw = msgspec.Raw(b"[]")


def is_document(path: str) -> bool:
    """True if a file says how its model is loaded, so that `check_document` has to pass it."""
    # Some file systems take `A` and `a` for one name.
    name = PurePosixPath(path).name.lower()
    return (
        name.endswith(("config.json", _INDEX))
        or name == _TOKENS
        or path.lower() == MODULES
        or bool(_TOKENIZER.fullmatch(name))
    )


def max_bytes(path: str) -> int:
    """The largest size of a document, in bytes."""
    if path.lower() == MODULES:
        return MODULES_BYTES
    if is_step(path):
        return STEP_BYTES
    return MAX_TOKENIZER_BYTES if _TOKENIZER.fullmatch(_name(path)) else _MAX_BYTES


def check_document(
    path: str, content: bytes, *, known: Collection[str], weights: int | None = None
) -> None:
    """Refuses what names code or files from elsewhere, or is too much; raises RefusedDocument.

    `known` are the paths of all files of the folder, as `path` is one; `weights` are the bytes of
    its weights, None where nobody loads them by this document.
    """
    name = _name(path)
    if _TOKENIZER.fullmatch(name):
        _check_tokenizer(path, content)
        return
    if path.lower() == MODULES:
        check_modules(content, known)
        return
    sizes.refuse_many_values(path, content)
    document = _object(path, content)
    values.refuse_code(path, document)
    if name.endswith(_INDEX):
        _check_index(path, document, known)
        return
    values.refuse_paths(path, _without_known_files(document))
    if name == _TOKENIZER_CONFIG:
        values.refuse_all_but_words(path, document)
    elif name == _TOKENS:
        values.refuse_all_but_tokens(path, document)
    elif name == _ADAPTER_CONFIG and document.get("megatron_core") not in _MEGATRON:
        raise RefusedDocument(
            f"{path!r} names {document['megatron_core']!r} as megatron_core.", reason="remote_code"
        )
    elif path == "config.json":
        _check_kind(document)
        if weights is not None:
            sizes.refuse_declared_sizes(path, document, weights)


def _check_kind(document: dict[str, Any]) -> None:
    if not isinstance(document.get("model_type"), str):
        raise RefusedDocument("config.json does not name a model_type.", reason="invalid_config")
    names = document.get("architectures")
    if names is not None and not (
        isinstance(names, list) and all(isinstance(one, str) for one in names)
    ):
        raise RefusedDocument(
            "config.json has 'architectures' that are no list of names.", reason="invalid_config"
        )
    if is_classifier(document):
        activation_of(document)


def _check_tokenizer(path: str, content: bytes) -> None:
    """A vocabulary that is a string is opened by some classes.

    Only the first byte of each is looked at, since a whole one is large.
    """
    try:
        tokenizer = msgspec.json.decode(content, type=_Tokenizer)
    except (msgspec.DecodeError, RecursionError) as error:
        raise RefusedDocument(
            f"{path!r} is not a tokenizer in JSON.", reason="invalid_config"
        ) from error
    model = tokenizer.model
    parts = {"vocab": model.vocab, "merges": model.merges, "added_tokens": tokenizer.added_tokens}
    found = {key: bytes(value) for key, value in parts.items()}
    for key, value in found.items():
        if value[:1] not in (b"{", b"[", b"n"):
            raise RefusedDocument(f"{path!r} has a {key!r} that is not a list of tokens.")
    sizes.refuse_many_tokens(path, found)


def _check_index(path: str, document: dict[str, Any], known: Collection[str]) -> None:
    """A shard named `../other/model.safetensors` would read another model's weights."""
    folder = PurePosixPath(path).parent
    weights = document.get("weight_map")
    if not isinstance(weights, dict):
        raise RefusedDocument(f"{path!r} has no weight_map.", reason="invalid_config")
    for shard in set(map(str, weights.values())):
        if str(folder / shard) not in known:
            raise RefusedDocument(
                f"{path!r} names {shard!r}, which is missing.", reason="incomplete_model"
            )


def _without_known_files(document: dict[str, Any]) -> dict[str, Any]:
    """The document without versions of tokenizer.json that are named as they have to be."""
    versions = document.get("fast_tokenizer_files")
    if isinstance(versions, list) and all(
        isinstance(one, str) and (one == "tokenizer.json" or _VERSIONED.fullmatch(one))
        for one in versions
    ):
        return {key: value for key, value in document.items() if key != "fast_tokenizer_files"}
    return document


def _object(path: str, content: bytes) -> dict[str, Any]:
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise RefusedDocument(f"{path!r} is not JSON.", reason="invalid_config") from error
    if not isinstance(document, dict):
        raise RefusedDocument(f"{path!r} is not a JSON object.", reason="invalid_config")
    return document


def _name(path: str) -> str:
    return PurePosixPath(path).name.lower()
