"""One preset, as its file says."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from windlass.modelfiles.formats import FormatRule, Marks
from windlass.modelfiles.refusal import RefusedDocument

_MAX_BYTES = 64 * 1024
_MAX_FILES = 256
_Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}\Z")]
_Names = Annotated[tuple[_Name, ...], Meta(max_length=32)]
_Rules = Annotated[tuple[FormatRule, ...], Meta(max_length=16)]
Task = Literal["generation", "embedding", "scoring"]


class Preset(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Facts that hold for models of one family."""

    about: Annotated[str, Meta(min_length=1, max_length=400)]
    # Values of `model_type` in config.json.
    types: Annotated[tuple[_Name, ...], Meta(min_length=1, max_length=32)]
    task: Task = "generation"
    # Tokens that the tokenizer has, which tell families of one type apart.
    tokens: Marks = ()
    # Named templates for a model that has none, the most fitting first.
    chat_templates: _Names = ()
    # Formats, by the marks of the model's template.
    tools: _Rules = ()
    reasoning: _Rules = ()
    # Layers of an adapter; none for all linear ones.
    lora_targets: _Names = ()
    # Of engines, by their kind: `windlass.engine_arguments` knows them.
    arguments: Annotated[dict[_Name, dict[str, Any]], Meta(max_length=8)] = {}
    # What cannot be done with such a model, and why: training, or a kind of engine.
    limits: Annotated[dict[_Name, str], Meta(max_length=8)] = {}


class ModelPreset(msgspec.Struct, frozen=True):
    """The preset that a model was given, with what of it holds after the import."""

    name: str
    lora_targets: tuple[str, ...] = ()
    arguments: Mapping[str, Mapping[str, Any]] = {}


def read_presets(folder: Path) -> dict[str, Preset]:
    """Returns the presets of a folder's `*.json` by name.

    Raises RefusedDocument that names the file and its field.
    """
    files = sorted(folder.glob("*.json"))
    if len(files) > _MAX_FILES:
        raise RefusedDocument(f"{folder} has more than {_MAX_FILES} presets.")
    return {file.stem: _read(file) for file in files}


def _read(file: Path) -> Preset:
    try:
        msgspec.convert(file.stem, _Name)
        if file.stat().st_size > _MAX_BYTES:
            raise RefusedDocument(f"{file}: a preset has at most {_MAX_BYTES} bytes.")
        return msgspec.json.decode(file.read_bytes(), type=Preset)
    except (msgspec.DecodeError, OSError, RecursionError) as error:
        # msgspec's own words name the field, as in `$.tools[0].marks`.
        raise RefusedDocument(f"{file}: {error}") from error
