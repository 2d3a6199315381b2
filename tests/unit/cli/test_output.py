"""Data on stdout in the form that was asked for, all else on stderr."""

import json
from typing import Any

import pytest
import yaml

from windlass.cli.framework.columns import aligned, cells, field, number, size
from windlass.cli.framework.output import Output, OutputFormat

COLUMNS = {"ID": field("id"), "STATE": field("windlass.state"), "SIZE": size("bytes")}
ITEMS: list[dict[str, Any]] = [
    {"id": "a", "windlass": {"state": "running"}, "bytes": 999},
    {"id": "a-long-one", "windlass": None, "bytes": 1_500_000},
]


def printed(form: OutputFormat, capsys: pytest.CaptureFixture[str]) -> str:
    Output(form, quiet=False, color=True).items(ITEMS, COLUMNS)
    return capsys.readouterr().out


def test_a_table_is_aligned_and_whole(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(OutputFormat.TABLE, capsys).splitlines() == [
        "ID          STATE    SIZE",
        "a           running  999 B",
        "a-long-one  -        1.5 MB",
    ]


def test_machine_forms_hold_everything(capsys: pytest.CaptureFixture[str]) -> None:
    assert json.loads(printed(OutputFormat.JSON, capsys)) == ITEMS
    assert yaml.safe_load(printed(OutputFormat.YAML, capsys)) == ITEMS
    assert printed(OutputFormat.NAME, capsys) == "a\na-long-one\n"


def test_an_item_shows_moments_as_dates_and_leaves_out_nothing_else(
    capsys: pytest.CaptureFixture[str],
) -> None:
    item: dict[str, Any] = {
        "id": "x",
        "created_at": 1_700_000_000,
        "none": None,
        "tags": [],
        "n": 0,
        "flag": False,
    }
    Output(OutputFormat.TABLE, quiet=False, color=True).item(item)
    lines = dict(line.split(":", 1) for line in capsys.readouterr().out.splitlines())
    assert set(lines) == {"id", "created_at", "n", "flag"}
    assert lines["created_at"].strip().startswith("2023-11-1")


def test_a_series_is_one_document_each(capsys: pytest.CaptureFixture[str]) -> None:
    for item in ITEMS:
        Output(OutputFormat.JSON, quiet=False, color=True).stream(item, "not this")
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == ITEMS
    for item in ITEMS:
        Output(OutputFormat.YAML, quiet=False, color=True).stream(item, "not this")
    assert list(yaml.safe_load_all(capsys.readouterr().out)) == ITEMS


def test_prose_never_mixes_with_data(capsys: pytest.CaptureFixture[str]) -> None:
    Output(OutputFormat.JSON, quiet=False, color=True).note("well done")
    Output(OutputFormat.JSON, quiet=True, color=True).note("not a word")
    told = capsys.readouterr()
    assert (told.out, told.err) == ("", "well done\n")


def test_a_strangers_text_moves_no_cursor() -> None:
    [[cell]] = cells([{"id": "a\x1b[2Jb\nc\u202e"}], {"ID": field("id")})
    assert cell.isprintable()
    assert cell.startswith("a\N{REPLACEMENT CHARACTER}[2Jb c")


def test_small_things() -> None:
    assert aligned([]) == []
    assert number("x.y")({"x": {"y": 2.0386290}}) == "2.039"
    assert number("x.y")({}) == ""
