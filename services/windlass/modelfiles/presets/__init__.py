"""Presets: what is known of a family of models, where nobody says otherwise.

A preset is a file of `families/`, chosen by what a model's files say and never by its name. An
operator may add files of the same form (`inference.presets`).

It imports nothing else of Windlass but the formats and the refusal of `modelfiles`.
"""

from windlass.modelfiles.presets.preset import ModelPreset, Preset, read_presets
from windlass.modelfiles.presets.table import PresetTable, shipped

__all__ = ["ModelPreset", "Preset", "PresetTable", "read_presets", "shipped"]
