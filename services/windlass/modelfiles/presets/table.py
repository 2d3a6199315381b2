"""The presets that there are, and the one that a model is given."""

import json
from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path

from windlass.modelfiles.formats import Formats, formats_of
from windlass.modelfiles.presets.preset import ModelPreset, Preset, Task, read_presets

_FAMILIES = Path(__file__).parent / "families"


class PresetTable:
    """Presets by name, of which a model is given the first that fits."""

    def __init__(self, presets: Mapping[str, Preset]):
        self._presets = dict(presets)
        # Those that ask for tokens come before one for all others of the type.
        self._ordered = sorted(presets, key=lambda name: (-len(presets[name].tokens), name))
        self._tokens = sorted({token for one in presets.values() for token in one.tokens})

    def __getitem__(self, name: str) -> Preset:
        return self._presets[name]

    def tokens_in(self, tokenizer: bytes) -> frozenset[str]:
        """Returns the tokens that any preset asks for and that a tokenizer.json has."""
        return frozenset(one for one in self._tokens if _is_in(one, tokenizer))

    def choose(self, model_type: str, task: Task, tokens: Collection[str]) -> str:
        """Returns the name of the preset of a model; empty where its family has none."""
        return next(
            (
                name
                for name in self._ordered
                if model_type in (preset := self._presets[name]).types
                and preset.task == task
                and set(preset.tokens) <= set(tokens)
            ),
            "",
        )

    def given(self, name: str) -> ModelPreset | None:
        """Returns what a model keeps of its preset; None where it has none."""
        preset = self._presets.get(name)
        return ModelPreset(name, preset.lora_targets, preset.arguments) if preset else None

    def formats(self, name: str, template: str) -> Formats:
        """Returns the formats of a model by its preset, if any, and its chat template."""
        preset = self._presets.get(name)
        return formats_of(template, *((preset.tools, preset.reasoning) if preset else ()))


@cache
def shipped() -> Mapping[str, Preset]:
    """Returns the presets of this release by name."""
    return read_presets(_FAMILIES)


def _is_in(token: str, tokenizer: bytes) -> bool:
    # Written as it is, or in ASCII alone.
    return any(json.dumps(token, ensure_ascii=way).encode() in tokenizer for way in (True, False))
