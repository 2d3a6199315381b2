"""Mistakes in a configuration, in words that name the setting."""

import re
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_settings import SettingsError

PREFIX = "WINDLASS_"
# Read by the client, by an agent of its own, and by tests.
_OF_OTHERS = ("BASE_URL", "API_KEY", "CONTEXT", "PROJECT", "ORGANIZATION", "KILL_POINTS")
_OF_AGENTS = f"{PREFIX}AGENT_"


class ConfigError(ValueError):
    """The configuration is not valid; the message has a line for each mistake."""


def of_yaml(path: Path, error: yaml.YAMLError) -> ConfigError:
    """Returns the mistake of a file that is no YAML, with its place."""
    mark = getattr(error, "problem_mark", None)
    place = f"{path}, line {mark.line + 1}, column {mark.column + 1}" if mark else str(path)
    what = getattr(error, "problem", None) or "it cannot be read"
    return ConfigError(f"{place}: not valid YAML: {what}")


def of_values(error: ValidationError, schema: type[BaseModel], at: str = "") -> ConfigError:
    """Returns the mistakes that pydantic found in values at the path `at`, one a line."""
    lines: dict[str, str] = {}
    for one in error.errors(include_url=False, include_input=False):
        # What pydantic tried in turn for one value stands in brackets, and is nobody's key.
        parts = [str(part) for part in one["loc"] if "[" not in str(part)]
        path = [*filter(None, at.split(".")), *parts]
        key = ".".join(path)
        if one["type"] == "extra_forbidden":
            known = _section(schema, path[:-1]).model_fields
            lines[key] = f"{key}: is not a setting{did_you_mean(path[-1], known)}"
        else:
            what = one["msg"].removeprefix("Value error, ").replace("Input should", "must", 1)
            lines.setdefault(key, f"{key}: {what}")
    return ConfigError("\n".join(lines.values()))


def of_variable(error: SettingsError) -> ConfigError:
    """Returns the mistake of a variable whose list or mapping is no JSON."""
    found = re.search(r'field "(\w+)"', str(error))
    name = f"{PREFIX}{found[1].upper()}…" if found else f"{PREFIX}…"
    return ConfigError(f"{name}: a list or a mapping is JSON in a variable: {error.__cause__}")


def unknown_variables(names: Iterable[str], schema: type[BaseModel]) -> Iterator[tuple[str, str]]:
    """The variables of the environment that look like settings and are none, and why."""
    known = dict.fromkeys(_variables(schema, PREFIX))
    known |= dict.fromkeys(PREFIX + name for name in _OF_OTHERS)
    for name in sorted(names):
        spelled = name.upper()
        if not spelled.startswith(PREFIX) or spelled in known:
            continue
        is_agents = spelled.startswith(_OF_AGENTS) and not spelled.startswith(f"{_OF_AGENTS}_")
        # An agent's own schema, and the entries of a mapping.
        if is_agents or any(spelled.startswith(f"{one}__") for one in known):
            continue
        yield name, f"is not a setting{did_you_mean(spelled, known)}"


def did_you_mean(given: str, known: Iterable[str]) -> str:
    """Returns the end of a sentence that proposes the closest name; empty where none is close."""
    return "".join(f"; did you mean {one}?" for one in get_close_matches(given, list(known), 1))


def _section(schema: type[BaseModel], path: list[str]) -> type[BaseModel]:
    for name in path:
        field = schema.model_fields.get(name)
        if field is None or not isinstance(field.default, BaseModel):
            break
        schema = type(field.default)
    return schema


def _variables(schema: type[BaseModel], prefix: str) -> Iterator[str]:
    for name, field in schema.model_fields.items():
        variable = prefix + name.upper()
        yield variable
        default: Any = field.default
        if isinstance(default, BaseModel):
            yield from _variables(type(default), f"{variable}__")
