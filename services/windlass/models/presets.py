"""The presets of an installation: those of this release, and an operator's."""

from pathlib import Path

from windlass.core.config import Settings
from windlass.core.config.check import Finding
from windlass.engine_arguments import TAKEN, preset_arguments
from windlass.modelfiles import RefusedDocument
from windlass.modelfiles.presets import Preset, PresetTable, read_presets, shipped

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
        at = folder / f"{name}.json"
        if preset.chat_templates:
            # Whoever imports a model adds its template, and knows those of the release alone.
            raise RefusedDocument(f"{at}: chat_templates are those of the release; leave it out.")
        if unknown := sorted(set(preset.limits) - set(LIMITED)):
            raise RefusedDocument(f"{at}: limits.{unknown[0]}: the names are {', '.join(LIMITED)}.")
        try:
            preset_arguments(preset.arguments)
        except ValueError as error:
            raise RefusedDocument(f"{at}: arguments.{error}") from error
    return found
