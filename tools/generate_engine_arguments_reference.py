"""Writes docs/reference/engine-arguments.md from the types that decode arguments of engines."""

import textwrap
from pathlib import Path
from typing import Any

from windlass.engine_arguments import TAKEN, EngineArguments
from windlass.engine_flags import SGLANG_TAKEN

ROOT = Path(__file__).parents[1]
TARGET = ROOT / "docs" / "reference" / "engine-arguments.md"
HEAD = """# Arguments of engines

Made by `tools/generate_engine_arguments_reference.py` from `services/windlass/engine_arguments.py`;
a test keeps it true.

How engines run a model: `windlass models activate MODEL --set NAME=VALUE`, or `arguments` of
`PUT /v1/servings/MODEL`. What is not set is the engine's choice. An argument that the kind of
engine does not take is refused.

"""

DATA_PARALLEL = """
No engine takes data parallelism: the copies of a model are the replicas of its serving, each an
engine of its own that is placed, drained and replaced by itself. A deployment that has data
parallelism inside, such as vLLM's for large mixtures of experts, comes as an
[adopted stack](../how-to/adopt-a-serving-stack.md).
"""

FLAGS = """
## Flags of SGLang

An operator may add these to all engines of a machine (`windlass-agent --sglang-flag=--NAME=VALUE`);
SGLang's others are refused, since they run code, read or write files, log prompts, go past the
gateway, or are written by Windlass.

"""


def reference() -> str:
    """The whole page."""
    kinds = sorted(TAKEN)
    rows = [
        f"| argument | values | {' | '.join(f'`{kind}`' for kind in kinds)} | |",
        f"|---|---|{'---|' * len(kinds)}---|",
    ]
    properties = EngineArguments.model_json_schema()["properties"]
    for name, schema in properties.items():
        marks = " | ".join("✓" if name in TAKEN[kind] else "" for kind in kinds)
        rows.append(f"| `{name}` | {_values(schema)} | {marks} | {schema['description']} |")
    names = ", ".join(f"`{name}`" for name in sorted(SGLANG_TAKEN))
    flags = "\n".join(textwrap.wrap(names, 100, break_on_hyphens=False))
    return HEAD + "\n".join(rows) + "\n" + DATA_PARALLEL + FLAGS + flags + "\n"


def _values(schema: dict[str, Any]) -> str:
    chosen = next(one for one in schema["anyOf"] if one.get("type") != "null")
    if "enum" in chosen:
        return ", ".join(f"`{value}`" for value in chosen["enum"])
    if "minimum" in chosen:
        return f"{chosen['minimum']} to {chosen['maximum']}"
    return "true or false" if chosen["type"] == "boolean" else "a name"


if __name__ == "__main__":
    TARGET.write_text(reference())
    print(TARGET)
