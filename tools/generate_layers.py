"""Writes docs/architecture/layers.md from the layers of `.importlinter`."""

from configparser import ConfigParser
from pathlib import Path

ROOT = Path(__file__).parents[1]
TARGET = ROOT / "docs" / "architecture" / "layers.md"
HEAD = """# Layers

Made by `tools/generate_layers.py` from `.importlinter`; a test keeps it true. A module imports from
layers below its own, and not from others of its layer. `make check` holds the code to it; the
other contracts of `.importlinter` forbid single imports.
"""


def page() -> str:
    """The whole page."""
    parser = ConfigParser()
    parser.read(ROOT / ".importlinter")
    contracts = [parser[name] for name in parser.sections() if "contract" in name]
    return HEAD + "".join(
        _diagram(contract["containers"].strip(), contract["name"], contract["layers"].split("\n"))
        for contract in contracts
        if contract["type"] == "layers"
    )


def _diagram(container: str, name: str, layers: list[str]) -> str:
    rows = [layer.strip().replace(" | ", ", ") for layer in layers if layer.strip()]
    nodes = [f'    L{place}["{row}"]' for place, row in enumerate(rows)]
    arrows = "    " + " --> ".join(f"L{place}" for place in range(len(rows)))
    lines = ["", f"## `{container}`", "", f"{name[0].upper()}{name[1:]}.", ""]
    return "\n".join([*lines, "```mermaid", "flowchart TD", *nodes, arrows, "```", ""])


if __name__ == "__main__":
    TARGET.write_text(page())
