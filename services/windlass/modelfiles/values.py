"""Refusal of keys and strings that could name code or a file of the machine that loads them."""

import re
from collections.abc import Iterator
from typing import Any

from windlass.modelfiles.refusal import RefusedDocument

_CODE_KEYS = frozenset(
    {"auto_map", "auto_mapping", "trust_remote_code", "custom_generate", "custom_pipelines"}
)
# Constructors open these. What belongs there stands in files of the folder with fixed names.
_FILE_KEYS = frozenset(
    {"vocab", "merges", "entity_vocab", "init_inputs", "tokenizer_object", "adapters"}
    | {"tokenizer_name_or_path", "shadow_model", "filename"}
)
_FILE_KEY = re.compile(r".*_(files?|filename|path|paths|dir|dirs|folder|checkpoint)")
# The base of an adapter by its public name: a local path is refused as any other.
_NAME_KEY = "base_model_name_or_path"
# Written by older releases with a path of their author's machine, and never opened.
_IGNORED_KEYS = frozenset({"name_or_path", "_name_or_path", "special_tokens_map_file"})
# Free text: no loader opens it.
_TEXT_KEYS = frozenset(
    {"chat_template", "response_schema", "response_template", "id2label", "label2id"}
    | {"task_specific_params", "prompts", "pattern", "model_specific_special_tokens"}
)
_TOKEN_KEY = re.compile(r"(.*_)?(token|tokens)|added_tokens_decoder")
_KERNEL_KEY = re.compile(r".*(attn|attention|experts)_implementation")
_LOCAL = re.compile(r"[/~\\]|file:|\.{1,2}[/\\]|\.\.$|.*[/\\]\.\.([/\\]|$)|.*\x00", re.DOTALL)
# A word, several, or a version: what choices, names of classes, and languages look like.
_WORDS = re.compile(r"[\w<>|\[\]{}()#@%$*+=,;:!?' -]*|v?\d+(\.\w+)*", re.ASCII)


def refuse_code(path: str, document: Any) -> None:
    """Raises RefusedDocument where any part of a document names code to import."""
    for key, value in _pairs(document):
        if key in _CODE_KEYS and value:
            raise RefusedDocument(
                f"{path!r} has {key!r}: models that bring their own code are refused.",
                reason="remote_code",
            )


def refuse_paths(path: str, document: Any) -> None:
    """Raises RefusedDocument where any part names a file, or a string reads as a local path."""
    for key, value in _pairs(document, without=_TEXT_KEYS):
        if key in _IGNORED_KEYS or _TOKEN_KEY.fullmatch(key):
            continue
        is_number = isinstance(value, bool | int | float)
        names_file = key in _FILE_KEYS or (
            _FILE_KEY.fullmatch(key) and key != _NAME_KEY and not is_number
        )
        if names_file and value not in (None, "", [], {}, ()):
            raise _names_file(path, key)
        if _KERNEL_KEY.fullmatch(key) and isinstance(value, str) and "/" in value:
            raise RefusedDocument(
                f"{path!r} has {key!r} with a repository: models that bring their own code are "
                "refused.",
                reason="remote_code",
            )
        if any(_LOCAL.match(text) for text in _strings(value)):
            raise _names_file(path, key)


def refuse_all_but_words(path: str, document: dict[str, Any]) -> None:
    """Raises RefusedDocument for a constructor's argument that is a string and no known text.

    A plain word under an unknown key is let in, since honest models have many of them.
    """
    for key, value in document.items():
        if key in _IGNORED_KEYS | _TEXT_KEYS or _TOKEN_KEY.fullmatch(key):
            continue
        if isinstance(value, str) and not _WORDS.fullmatch(value):
            raise _names_file(path, key)
        # Options of SentencePiece or MeCab, of which some are paths.
        if key.endswith("_kwargs") and value and _holds_strings(value):
            raise _names_file(path, key)


def refuse_all_but_tokens(path: str, document: dict[str, Any]) -> None:
    """Raises RefusedDocument for any key that names no token: what else is there overrides."""
    for key, value in document.items():
        if not _TOKEN_KEY.fullmatch(key) or not isinstance(value, str | dict | list | None):
            raise RefusedDocument(f"{path!r} has {key!r}, which is not a special token.")


def _pairs(document: Any, without: frozenset[str] = frozenset()) -> Iterator[tuple[str, Any]]:
    """Every key with its value, at any depth; not beneath the keys of `without`."""
    pending = [document]
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            for key, inner in value.items():
                if key not in without:
                    yield key, inner
                    pending.append(inner)
        elif isinstance(value, list):
            pending.extend(value)


def _strings(value: Any) -> Iterator[str]:
    """A string, or those that lie right in a list."""
    for one in value if isinstance(value, list) else (value,):
        if isinstance(one, str):
            yield one


def _holds_strings(value: Any) -> bool:
    inner = value.values() if isinstance(value, dict) else (value,)
    return any(not isinstance(one, bool | int | float | None) for one in inner)


def _names_file(path: str, key: str) -> RefusedDocument:
    return RefusedDocument(
        f"{path!r} has {key!r}, which names a file or could be read as one. Leave it out: a model "
        "is loaded from the files of its own folder, by their usual names."
    )
