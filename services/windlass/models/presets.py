"""The presets of an installation: those of this release, and an operator's."""

from pathlib import Path

import msgspec

from windlass.core.config import Settings
from windlass.core.config.check import Finding
from windlass.engine_arguments import TAKEN, preset_arguments
from windlass.modelfiles import RefusedDocument
from windlass.modelfiles.presets import (
    ModelPreset,
    Preset,
    PresetTable,
    read_presets,
    shipped,
)

# Of what a model keeps, which lists of models show of each.
KEPT_BYTES = 512
# What a limit is of.
LIMITED = ("training", *sorted(TAKEN))


def preset_table(folder: str = "") -> PresetTable:
    """Returns the presets of this release, and those of a folder beside them or in their places.

    Raises RefusedDocument that names the file and its field.
    """
    return PresetTable({**shipped(), **(_own(Path(folder)) if folder else {})})


def check_presets(settings: Settings) -> list[Finding]:
    """The findings on an operator's presets, which prevent a start."""
    try:
        preset_table(settings.inference.presets)
    except RefusedDocument as error:
        return [Finding("error", "inference.presets", error.message)]
    return []


def _own(folder: Path) -> dict[str, Preset]:
    if not folder.is_dir():
        raise RefusedDocument(f"{folder} is no folder.")
    found = read_presets(folder)
    for name, preset in found.items():
        if mistake := _mistake(name, preset):
            raise RefusedDocument(f"{folder / name}.json: {mistake}")
    return found


def _mistake(name: str, preset: Preset) -> str:
    """Returns what an operator's preset may not say, with its field; empty for none."""
    if preset.chat_templates:
        # Whoever imports a model adds its template, and knows those of the release alone.
        return "chat_templates: are those of the release; leave it out."
    if unknown := sorted(set(preset.limits) - set(LIMITED)):
        return f"limits.{unknown[0]}: the names are {', '.join(LIMITED)}."
    try:
        preset_arguments(preset.arguments)
    except ValueError as error:
        return f"arguments.{error}"
    kept = ModelPreset(name, preset.lora_targets, preset.arguments)
    if len(msgspec.json.encode(kept)) > KEPT_BYTES:
        return f"lora_targets: has, with arguments, more than {KEPT_BYTES} bytes."
    return ""
