"""Writes docs/reference/presets.md from the presets of this release."""

from collections.abc import Iterable
from pathlib import Path

from windlass.modelfiles.formats import FormatRule, marked_tools
from windlass.modelfiles.presets import Preset, shipped

ROOT = Path(__file__).parents[1]
TARGET = ROOT / "docs" / "reference" / "presets.md"
HEAD = """# Presets

Made by `tools/generate_presets_reference.py` from `services/windlass/modelfiles/presets/families`;
a test keeps it true.

A preset is what is known of a family of models, and holds where nobody says otherwise. A model is
given one when it is imported or fetched, by `model_type` and `architectures` in its `config.json`
and by the tokens of its tokenizer, never by its name, and keeps it. What is in no preset is read
from the model's files, as the formats at the end of this page are.

- A chat template, which `windlass models import --chat-template preset` adds to a model that has
  none. Its own, and any other `--chat-template`, win over it.
- Formats of tool calls and reasoning, by marks of the model's template: `formats` of `windlass
  models get`. `tool_parser` and `reasoning_parser` of the model's serving win over them.
- Layers of an adapter: `preset` of `windlass models get`, and then `target_modules` of a job's
  configuration. `windlass.config.target_modules` of the request wins over them.
- Arguments of engines, by their kind: `preset` of `windlass models get`, and `PRESET` of `windlass
  models serving`. Those of `windlass models activate MODEL --set NAME=VALUE` win over them.

`derived_arguments` of `GET /v1/servings/MODEL` are those that its engines have beside the ones that
are set. A model that was imported before there were presets has none: adapters are on all linear
layers, and engines choose.

## An operator's presets

`inference.presets` names a folder of files `NAME.json` of the form of this release's own; one of
the same name takes the place of a preset below. It counts for models that come afterwards.

```json
{
  "about": "Our models for the help desk.",
  "types": ["qwen3"],
  "tokens": ["<|desk|>"],
  "tools": [{"format": "hermes", "marks": ["<tool_call>"]}],
  "lora_targets": ["q_proj", "v_proj"],
  "arguments": {"vllm": {"context_length": 8192}}
}
```

`tokens` are optional; where several presets have a type, the one with the most of them that the
tokenizer has is chosen. `task` is `generation` (the default), `embedding` or `scoring`. Arguments
are those of [engines](engine-arguments.md), but none of devices (`tensor_parallel`,
`pipeline_parallel`, `expert_parallel`, `memory_fraction`, `kv_cache_bytes`, `kv_offload_bytes`),
and no `draft_model` and `draft_tokens`, which are of servings. `chat_templates` are of this release
alone. The server refuses to start with a file that it cannot use, and names the file and the field;
`windlass config check` does so before.
"""
TASKS = {
    "generation": "Models that write",
    "embedding": "Models that make vectors",
    "scoring": "Models that score",
}
GENERAL = """
## Formats of tool calls by their marks

Of a model whose preset has none that fits, or that has no preset. The first whose marks are all in
the chat template counts; the words are those of vLLM's parsers.

"""


def reference() -> str:
    """The whole page."""
    parts = [HEAD]
    for task, title in TASKS.items():
        parts.append(f"\n## {title}\n")
        parts += [
            _section(name, preset) for name, preset in shipped().items() if preset.task == task
        ]
    return "".join([*parts, GENERAL, *(f"- {_rule(rule)}\n" for rule in marked_tools())])


def _section(name: str, preset: Preset) -> str:
    rows = {
        "`model_type`": _words(preset.types),
        "tokens of the tokenizer": _words(preset.tokens),
        "chat template, where it has none": _words(preset.chat_templates),
        "format of tool calls": "; ".join(map(_rule, preset.tools)),
        "format of reasoning": "; ".join(map(_rule, preset.reasoning)),
        "layers of an adapter": _words(preset.lora_targets),
        **{
            f"arguments of `{kind}`": _words(f"{key}={value}" for key, value in values.items())
            for kind, values in preset.arguments.items()
        },
        **{
            (f"not `{name}`" if name != "training" else "no training"): why
            for name, why in preset.limits.items()
        },
    }
    lines = [f"| {title} | {value} |\n" for title, value in rows.items() if value]
    return f"\n### {name}\n\n{preset.about}\n\n| | |\n|---|---|\n{''.join(lines)}"


def _rule(rule: FormatRule) -> str:
    marks = " and ".join(_word(mark) for mark in rule.marks)
    return f"`{rule.format}`" + (f" with {marks}" if marks else "")


def _words(words: Iterable[str]) -> str:
    return ", ".join(map(_word, words))


def _word(text: str) -> str:
    # A bar would end the cell.
    return f"`{text}`".replace("|", "\\|")


if __name__ == "__main__":
    TARGET.write_text(reference())
    print(TARGET)
