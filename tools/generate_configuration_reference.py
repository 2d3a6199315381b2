"""Writes docs/reference/configuration.md from the schemas that the settings are read by."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from windlass.core.config import Settings
from windlass_agent.config import AgentSettings

TARGET = Path(__file__).parents[1] / "docs" / "reference" / "configuration.md"
BOUNDS: dict[type, tuple[str, str]] = {
    Ge: ("from", "ge"),
    Gt: ("more than", "gt"),
    Le: ("to", "le"),
    Lt: ("less than", "lt"),
}
HEAD = """# Configuration

Made by `tools/generate_configuration_reference.py` from the schema; a test keeps it true.

A setting comes from a flag, else from an environment variable, else from the YAML file of
`--config`, else it has its default. `http.port` is `port:` under `http:` in the file, and
`WINDLASS_HTTP__PORT` in the environment; a list or a mapping is JSON there. `windlass config show`
prints what holds, `windlass config check` what is wrong with it. Examples are in `deploy/config`.
"""
AGENT = """
## A standalone agent

Each is a variable such as `WINDLASS_AGENT_CONTROL_PLANE`; most are also flags of `windlass-agent`,
which win. In Kubernetes the chart sets them.

"""


def reference() -> str:
    """The whole page."""
    return HEAD + "".join(_sections(Settings, "")) + AGENT + _table(AgentSettings, "")


def _sections(model: type[BaseModel], path: str) -> Iterator[str]:
    """A table for a section, then those of the sections in it."""
    if path:
        yield f"\n## {path}\n\n{' '.join((model.__doc__ or '').split())}\n\n"
    else:
        yield "\n## Top level\n\n"
    yield _table(model, path)
    for name, field in model.model_fields.items():
        if isinstance(field.default, BaseModel):
            yield from _sections(type(field.default), f"{path}.{name}".strip("."))


def _table(model: type[BaseModel], path: str) -> str:
    lines = ["| setting | type | default | meaning |", "|---|---|---|---|"]
    for name, field in model.model_fields.items():
        if isinstance(field.default, BaseModel):
            continue
        cells = (_kind(field), _default(field.default), field.description or "")
        row = " | ".join(cell.replace("|", "\\|").replace("<", "&lt;") for cell in cells)
        lines.append(f"| `{f'{path}.{name}'.strip('.')}` | {row} |")
    return "\n".join(lines) + "\n"


def _kind(field: FieldInfo) -> str:
    """The type as an operator knows it, with its bounds."""
    shown = _type(field.annotation)
    bounds = [
        f"{word} {_number(getattr(bound, attribute))}"
        for bound in field.metadata
        for word, attribute in [BOUNDS.get(type(bound), ("", ""))]
        if word
    ]
    return f"{shown}, {' '.join(bounds)}" if bounds else shown


def _type(annotation: Any) -> str:
    origin = getattr(annotation, "__origin__", None)
    arguments: tuple[Any, ...] = getattr(annotation, "__args__", ())
    name = getattr(annotation, "__name__", "")
    if hasattr(annotation, "__metadata__"):
        return _type(origin)
    if name == "Literal" or str(origin) == "typing.Literal":
        return " or ".join(f"`{value}`" for value in arguments)
    if origin is list:
        return f"list of {_type(arguments[0])}"
    if origin is dict:
        return "mapping"
    words = {"int": "integer", "float": "number", "bool": "boolean", "str": "text"}
    words |= {"Path": "path", "SecretStr": "secret", "IPv4Network": "network"}
    if arguments:
        kinds = dict.fromkeys(_type(one) for one in arguments if one is not type(None))
        return " or ".join(kinds)
    return words.get(name, "network" if name == "IPv6Network" else name)


def _number(value: float) -> str:
    return f"{value:,}" if value >= 10_000 else f"{value:g}"


def _default(value: object) -> str:
    if value is None or value in ("", [], {}) or value == SecretStr(""):
        return ""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, int | float):
        return f"`{value:g}`" if isinstance(value, float) else f"`{value}`"
    return f"`{', '.join(value)}`" if isinstance(value, list) else f"`{value}`"


if __name__ == "__main__":
    TARGET.write_text(reference())
