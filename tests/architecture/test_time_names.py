"""Names of times: one in milliseconds is a moment or a duration, and a duration has its unit."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import windlass
import windlass_agent
from windlass.core.db import metadata
from windlass.migrations.tables import load_tables

PROTOS = Path(__file__).parents[2] / "proto"
_FIELD = re.compile(r"^\s*(int64|int32|double) (\w+_ms) = \d+;", re.MULTILINE)
# `created_at_ms`, `not_before_ms`, `deadline_ms`; a duration is named as one.
_MOMENT = re.compile(r"(^|_)(at|before|deadline)_ms$")
_DURATION = re.compile(r"^(duration|device_time|time_to_first_token)_ms$")


def milliseconds() -> list[str]:
    load_tables()
    columns = [f"{t.name}.{c.name}" for t in metadata.sorted_tables for c in t.c]
    fields = [
        f"{path.stem}.{name}"
        for path in PROTOS.rglob("*.proto")
        for _, name in _FIELD.findall(path.read_text())
    ]
    return sorted({name for name in (*columns, *fields) if name.endswith("_ms")})


@pytest.mark.parametrize("name", milliseconds())
def test_a_name_in_milliseconds_is_a_moment_or_a_duration(name: str) -> None:
    field = name.rpartition(".")[2]
    assert _MOMENT.search(field) or _DURATION.search(field)


# `timeout` is Python's own word for seconds, and stays as it is.
_UNITLESS = re.compile(
    r"(^|_)(beat|delay|grace|interval|lifetime|patience|pause|period|poll|ttl|wait|within)$"
)
# A section in which every value is in seconds, as its keys in operators' files are.
_SECTIONS = {"Deadlines", "Patience"}


def test_a_duration_in_numbers_is_named_with_its_unit() -> None:
    found = [
        f"{file}:{line}: {name}"
        for package in (windlass, windlass_agent)
        for file in Path(package.__path__[0]).rglob("*.py")
        for line, name in _numbers(ast.parse(file.read_text()))
        if _UNITLESS.search(name)
    ]
    assert found == []


def _numbers(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and name of each parameter and attribute whose type is a number."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef) and node.name in _SECTIONS:
            continue
        if isinstance(node, ast.arg) and node.annotation is not None:
            name, annotation, line = node.arg, node.annotation, node.lineno
        elif isinstance(node, ast.AnnAssign):
            name, annotation, line = ast.unparse(node.target), node.annotation, node.lineno
        else:
            annotation = None
        if annotation is not None and re.match(r"(int|float)\b", ast.unparse(annotation)):
            yield line, name.rpartition(".")[2]
        yield from _numbers(node)
