"""The how-to on converting data, run as it is printed."""

import json
import os
import sys
from pathlib import Path

from tests.support.processes import pages

from windlass.datasets import FileSummary, inspect_file

PAGE = "how-to/convert-your-data.md"


def test_the_page_on_converting_is_true(tmp_path: Path) -> None:
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    printed = pages.run(pages.script(PAGE), {**os.environ, "PATH": programs}, tmp_path)
    (shown,) = pages.blocks(PAGE, "text", until="What is read")
    for line in shown.splitlines():
        assert line.partition("…")[0] in printed
    examples = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    assert [row["messages"][1]["content"] for row in examples] == ["Ahoy!", "la mer"]
    assert inspect_file(tmp_path / "alpaca.jsonl") == FileSummary(
        format="chat", examples=2, bytes=(tmp_path / "alpaca.jsonl").stat().st_size
    )
    assert inspect_file(tmp_path / "pairs.jsonl").format == "preference"
