"""The how-to on converting data, run as it is printed."""

import json
import os
import sys
from pathlib import Path

from tests.support.processes import pages
from tests.support.processes.windlass import make_single, running

from windlass.datasets import FileSummary, inspect_file

PAGE = "how-to/convert-your-data.md"
UPLOAD = "Upload it"


def environment(**more: str) -> dict[str, str]:
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": programs, **more}


def test_the_page_on_converting_is_true(tmp_path: Path) -> None:
    printed = pages.run(pages.script(PAGE, until=UPLOAD), environment(), tmp_path)
    (shown,) = pages.blocks(PAGE, "text", until="What is read")
    for line in shown.splitlines():
        assert line.partition("…")[0] in printed
    examples = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    assert [row["messages"][1]["content"] for row in examples] == ["Ahoy!", "la mer"]
    assert inspect_file(tmp_path / "alpaca.jsonl") == FileSummary(
        format="chat", examples=2, bytes=(tmp_path / "alpaca.jsonl").stat().st_size
    )
    assert inspect_file(tmp_path / "pairs.jsonl").format == "preference"

    with running(make_single(tmp_path / "data", {"agent": {"enabled": False}})) as server:
        here = environment(WINDLASS_BASE_URL=server.url, WINDLASS_API_KEY=server.owner_key)
        uploaded = json.loads(pages.run(pages.script(PAGE, after=UPLOAD), here, tmp_path))
    (promised,) = pages.blocks(PAGE, "json", after=UPLOAD)
    assert shape(uploaded["windlass"]) == shape(json.loads(promised))


def shape(value: object) -> object:
    """A value without what differs from run to run."""
    if isinstance(value, dict):
        return {name: shape(each) for name, each in value.items() if name != "sha256"}
    return value.partition(" ")[0] if isinstance(value, str) else value
