"""Names of times: a column or a field in milliseconds says whether it is a moment or a duration."""

import re
from pathlib import Path

import pytest

from windlass.core.db import metadata
from windlass.migrations.tables import load_tables

PROTOS = Path(__file__).parents[2] / "proto"
_FIELD = re.compile(r"^\s*(int64|int32|double) (\w+_ms) = \d+;", re.MULTILINE)
# `created_at_ms`, `not_before_ms`, `deadline_ms`; a duration is named as one.
_MOMENT = re.compile(r"(^|_)(at|before|deadline)_ms$")
_DURATION = re.compile(r"^(duration|time_to_first_token)_ms$")


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
