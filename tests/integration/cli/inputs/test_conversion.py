"""`windlass files convert` as a process; it needs no server and no credentials."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.support.processes.command import windlass

from windlass.cli.jobs.conversion import SourceFormat
from windlass.datasets import inspect_file
from windlass.datasets.shapes import RowShape
from windlass.datasets.sources import SourceContainer

ROWS = [
    {"instruction": "Add.", "input": "1 and 2", "output": "3", "id": 7},
    {"instruction": "Say nothing.", "input": "", "output": ""},
]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "my data.json"
    path.write_text(json.dumps(ROWS))
    return path


def convert(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return windlass(folder, "files", "convert", *arguments)


def test_a_file_is_converted_and_summed_up(source: Path) -> None:
    done = convert(source.parent, source.name, "-o", "json")
    assert done.returncode == 0, done.stderr
    said: dict[str, Any] = json.loads(done.stdout)
    assert "my data.json is alpaca (json): 1 of 2 rows became chat examples." in done.stderr
    assert (said["rows_read"], said["rows_written"], said["left_out"]) == (2, 1, {"id": 1})
    assert said["skipped"] == [
        {"count": 1, "reason": "invalid_example", "message": "output: is empty.", "lines": [2]}
    ]
    assert inspect_file(source.parent / said["file"]).examples == 1


def test_what_is_there_is_replaced_only_by_force(source: Path) -> None:
    target = source.with_suffix(".jsonl")
    target.write_text("mine")
    refused = convert(source.parent, str(source))
    assert (refused.returncode, "--force" in refused.stderr) == (2, True)
    assert target.read_text() == "mine"
    forced = convert(source.parent, str(source), "--force", "-q", "-o", "name")
    assert (forced.stdout.strip(), forced.stderr) == (str(target), "")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--strict"], "Row 2: output: is empty."),
        (["--format", "sharegpt"], "None of 2 rows could be converted. Row 1: conversations: is"),
        (["--format", "parquet"], "This is not a Parquet file"),
    ],
)
def test_what_cannot_be_converted_is_one_line(
    source: Path, arguments: list[str], said: str
) -> None:
    done = convert(source.parent, source.name, *arguments)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert said in done.stderr
    assert [path.name for path in source.parent.iterdir()] == [source.name]


def test_a_training_file_is_not_written_over_itself(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text(json.dumps({"prompt": "a", "completion": "b"}))
    done = convert(tmp_path, "rows.jsonl", "-q", "-o", "name")
    assert done.stdout.strip() == "rows.converted.jsonl"


def test_the_command_knows_every_format() -> None:
    known = {*RowShape, SourceContainer.CSV, SourceContainer.PARQUET, "auto"}
    assert {format_.value for format_ in SourceFormat} == known
