"""Writes docs/reference/engine-arguments.md from the types that decode arguments of engines."""

from pathlib import Path
from typing import Any

from windlass.engine_arguments import TAKEN, EngineArguments

ROOT = Path(__file__).parents[1]
TARGET = ROOT / "docs" / "reference" / "engine-arguments.md"
HEAD = """# Arguments of engines

Made by `tools/generate_engine_arguments_reference.py` from `services/windlass/engine_arguments.py`;
a test keeps it true.

How engines run a model: `windlass models activate MODEL --set NAME=VALUE`, or `arguments` of
`PUT /v1/servings/MODEL`. What is not set is the engine's choice. An argument that the kind of
engine does not take is refused.

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
    return HEAD + "\n".join(rows) + "\n"


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
