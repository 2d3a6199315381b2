"""Writes docs/reference/configuration.md from the schemas that the settings are read by."""

from pathlib import Path
from typing import Any

from windlass.core.config import Settings
from windlass.core.config.schema import Setting, sections
from windlass_agent.config import AgentSettings

TARGET = Path(__file__).parents[1] / "docs" / "reference" / "configuration.md"
HEAD = """# Configuration

Made by `tools/generate_configuration_reference.py` from the schema; a test keeps it true.

A setting comes from a flag, else from its environment variable, else from the YAML file of
`--config`, else it has its default. `http.port` is `port:` under `http:` in the file; a list or a
mapping is JSON in a variable. `windlass config example` prints a file with every setting and its
meaning, `windlass config show` what holds, `windlass config check` what is wrong with it. Examples
are in `deploy/config`.
"""
AGENT = """
## A standalone agent

Most are also flags of `windlass-agent`, which win. In Kubernetes the chart sets them.

"""


def reference() -> str:
    """The whole page."""
    parts = [HEAD]
    for section in sections(Settings, "WINDLASS_"):
        title = f"{section.path}\n\n{section.about}" if section.path else "Top level"
        parts.append(f"\n## {title}\n\n{_table(section.settings)}")
    agent = next(sections(AgentSettings, "WINDLASS_AGENT_"))
    return "".join(parts) + AGENT + _table(agent.settings)


def _table(settings: tuple[Setting, ...]) -> str:
    lines = ["| setting | variable | type | default | meaning |", "|---|---|---|---|---|"]
    for one in settings:
        cells = (one.kind, _default(one.default), one.description)
        row = " | ".join(cell.replace("|", "\\|").replace("<", "&lt;") for cell in cells)
        lines.append(f"| `{one.path}` | `{one.variable}` | {row} |")
    return "\n".join(lines) + "\n"


def _default(value: Any) -> str:
    if value is None or value in ("", [], {}):
        return ""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, int | float):
        return f"`{value:g}`" if isinstance(value, float) else f"`{value}`"
    return f"`{', '.join(value)}`" if isinstance(value, list) else f"`{value}`"


if __name__ == "__main__":
    TARGET.write_text(reference())
