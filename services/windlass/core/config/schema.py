"""The schema of the settings as people read it: path, type, default, meaning."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

_BOUNDS: dict[type, tuple[str, str]] = {
    Ge: ("from", "ge"),
    Gt: ("more than", "gt"),
    Le: ("to", "le"),
    Lt: ("less than", "lt"),
}
_WORDS = {
    **{"int": "integer", "float": "number", "bool": "boolean", "str": "text"},
    **{"Path": "path", "SecretStr": "secret", "IPv4Network": "network", "IPv6Network": "network"},
}


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting of a section."""

    path: str
    kind: str
    default: Any
    description: str
    variable: str


@dataclass(frozen=True, slots=True)
class SectionOf:
    """A section: its own settings, and what it is for. The top level has no path."""

    path: str
    about: str
    settings: tuple[Setting, ...]


def sections(model: type[BaseModel], prefix: str, path: str = "") -> Iterator[SectionOf]:
    """A section, then those in it; `prefix` begins the names of variables."""
    fields = model.model_fields.items()
    inner = [(name, field.default) for name, field in fields if _is_section(field)]
    own = tuple(
        _setting(field, _at(path, name), prefix) for name, field in fields if not _is_section(field)
    )
    yield SectionOf(path, " ".join((model.__doc__ or "").split()), own)
    for name, default in inner:
        yield from sections(type(default), prefix, _at(path, name))


def _is_section(field: FieldInfo) -> bool:
    return isinstance(field.default, BaseModel)


def _at(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _setting(field: FieldInfo, path: str, prefix: str) -> Setting:
    default: Any = field.default
    if isinstance(default, SecretStr):
        default = default.get_secret_value()
    variable = prefix + path.replace(".", "__").upper()
    return Setting(path, _kind(field), default, field.description or "", variable)


def _kind(field: FieldInfo) -> str:
    """The type as an operator knows it, with its bounds."""
    bounds = [
        f"{word} {_number(getattr(bound, attribute))}"
        for bound in field.metadata
        for word, attribute in [_BOUNDS.get(type(bound), ("", ""))]
        if word
    ]
    shown = _type(field.annotation)
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
    if arguments:
        kinds = dict.fromkeys(_type(one) for one in arguments if one is not type(None))
        return " or ".join(kinds)
    return _WORDS.get(name, name)


def _number(value: float) -> str:
    return f"{value:,}" if value >= 10_000 else f"{value:g}"
