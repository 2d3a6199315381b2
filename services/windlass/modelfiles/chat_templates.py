"""Chat templates: whether a model has one, and some by name for a model that has none."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from windlass.modelfiles.presets import PresetTable, shipped
from windlass.modelfiles.refusal import RefusedDocument

T = TypeVar("T")
CHAT_TEMPLATE = "chat_template.jinja"
_FOLDER = Path(__file__).with_name("chat_templates")
NAMED = tuple(sorted(path.stem for path in _FOLDER.glob("*.jinja")))
_MAX_BYTES = 2**20
# Words that stand for one token each, where a tokenizer was made for them.
_MARK = re.compile(r"<\|\w+\|>|<(?:start|end)_of_turn>|\[/?INST\]")
# Those that end an answer, which has to be where an engine stops.
_ENDS = ("<|im_end|>", "<|eot_id|>", "<end_of_turn>", "<|EOT|>")
# In the place of a name: the template of the model's preset.
OF_PRESET = "preset"


class _Token(msgspec.Struct):
    content: str
    id: int = -1


class _TokenizerTokens(msgspec.Struct):
    added_tokens: list[_Token] | None = None


class _TokenizerConfig(msgspec.Struct):
    chat_template: Any = None
    eos_token: _Token | str | None = None


class _Typed(msgspec.Struct):
    model_type: str = ""


class _Config(msgspec.Struct):
    eos_token_id: int | list[int] | None = None


def chat_template(given: str) -> Path:
    """Returns the file of a template by its name or path; raises RefusedDocument for none."""
    path = _FOLDER / f"{given}.jinja" if given in NAMED else Path(given)
    if not path.is_file():
        raise RefusedDocument(
            f"There is no chat template {given!r}: give a file, or one of {', '.join(NAMED)}."
        )
    _text(path)
    return path


def has_chat_template(files: Mapping[str, Path]) -> bool:
    """Returns True if a model's files bring a chat template."""
    if CHAT_TEMPLATE in files or "chat_template.json" in files:
        return True
    try:
        return bool(_decoded(files, "tokenizer_config.json", _TokenizerConfig).chat_template)
    except msgspec.DecodeError:
        return False


def fitting(files: Mapping[str, Path]) -> list[str]:
    """Returns the names of the templates all of whose marks the model's tokenizer knows.

    Where the model's family has a preset with some of them, those of it, the most fitting first.
    """
    tokenizer = _tokenizer(files)
    found = [name for name in NAMED if not _missing(_text(_FOLDER / f"{name}.jinja"), tokenizer)]
    try:
        model_type = _decoded(files, "config.json", _Typed).model_type
    except msgspec.DecodeError:
        return found
    table = PresetTable(shipped())
    preset = table.choose(model_type, "generation", table.tokens_in(tokenizer))
    own = table[preset].chat_templates if preset else ()
    return [name for name in own if name in found] or found


def given_template(files: Mapping[str, Path], given: str) -> Path | None:
    """Returns the template that a model is given: by name or path, or that of its preset.

    The latter is for a model that has none; None where it has. Raises RefusedDocument.
    """
    if given != OF_PRESET:
        return chat_template(given)
    if has_chat_template(files):
        return None
    if names := fitting(files):
        return chat_template(names[0])
    raise RefusedDocument("No named chat template fits the model's tokenizer: give a file.")


def misfits(files: Mapping[str, Path]) -> list[str]:
    """Returns sentences on what of the model's template does not fit its tokenizer."""
    text = _text(files[CHAT_TEMPLATE])
    found = []
    if missing := _missing(text, _tokenizer(files)):
        found.append(
            f"The tokenizer does not have {', '.join(missing)}: the chat template writes them, and "
            "the model reads each as several tokens."
        )
    ends = [end for end in _ENDS if end in text]
    stops = _stops(files)
    if ends and stops and not stops.intersection(ends):
        found.append(
            f"An answer ends with {ends[0]} in the chat template, but engines stop at "
            f"{' or '.join(sorted(stops))}: set eos_token in tokenizer_config.json, and "
            "eos_token_id in generation_config.json."
        )
    return found


def _missing(text: str, tokenizer: bytes) -> list[str]:
    marks = dict.fromkeys(_MARK.findall(text))
    return [mark for mark in marks if json.dumps(mark).encode() not in tokenizer]


def _stops(files: Mapping[str, Path]) -> set[str]:
    """The tokens that end an answer in an engine; empty where the files do not tell all of them."""
    try:
        ids = _ends(files, "generation_config.json") or _ends(files, "config.json")
        if not ids:
            config = _decoded(files, "tokenizer_config.json", _TokenizerConfig)
            token = config.eos_token
            return {token.content if isinstance(token, _Token) else token} if token else set()
        tokens = _decoded(files, "tokenizer.json", _TokenizerTokens).added_tokens or []
    except msgspec.DecodeError:
        return set()
    words = {token.id: token.content for token in tokens}
    return {words[each] for each in ids} if words.keys() >= set(ids) else set()


def _ends(files: Mapping[str, Path], name: str) -> list[int]:
    declared = _decoded(files, name, _Config).eos_token_id
    return [declared] if isinstance(declared, int) else declared or []


def _tokenizer(files: Mapping[str, Path]) -> bytes:
    path = files.get("tokenizer.json")
    return path.read_bytes() if path else b"{}"


def _decoded(files: Mapping[str, Path], name: str, kind: type[T]) -> T:
    content = files[name].read_bytes() if name in files else b"{}"
    return msgspec.json.decode(content, type=kind)


def _text(path: Path) -> str:
    if path.stat().st_size > _MAX_BYTES:
        raise RefusedDocument(f"{path} must have at most {_MAX_BYTES} bytes, as a chat template.")
    try:
        text = path.read_text()
    except UnicodeDecodeError as error:
        raise RefusedDocument(f"{path} must be text in UTF-8, as a chat template is.") from error
    if "messages" not in text:
        raise RefusedDocument(f"{path} must use `messages`, as a chat template does.")
    return text
