"""Data on stdout in the form that was asked for, all else on stderr."""

import io
import json
from contextlib import nullcontext
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
import yaml
from rich.console import Console
from tests.support.waiting import wait_until

from windlass.cli.framework.calling import Call
from windlass.cli.framework.columns import (
    Columns,
    Item,
    aligned,
    cells,
    field,
    number,
    size,
)
from windlass.cli.framework.context import Flags
from windlass.cli.framework.fitting import fitted, shortened
from windlass.cli.framework.listing import show_list
from windlass.cli.framework.output import Output, OutputFormat
from windlass.cli.models import engines, serving
from windlass.client.display import waiting
from windlass.client.display.job_bar import follow_job
from windlass.client.display.progress import transfer

if TYPE_CHECKING:
    from windlass.client import Windlass

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


def test_an_empty_table_has_no_lines_and_numbers_are_rounded() -> None:
    assert aligned([]) == []
    assert number("x.y")({"x": {"y": 2.0386290}}) == "2.039"
    assert number("x.y")({}) == ""


NAMED = [{"id": "ft:ticket:new:x"}, {"id": "[red]x[/red]"}]


def test_what_a_tenant_names_is_no_markup(capsys: pytest.CaptureFixture[str]) -> None:
    console = Output(OutputFormat.TABLE, quiet=False, color=True).console(stderr=False)
    for item in NAMED:
        console.print(item["id"])
    table = Output(OutputFormat.TABLE, quiet=False, color=True).table(NAMED, {"ID": field("id")})
    console.print(table)
    printed = capsys.readouterr().out
    for item in NAMED:
        assert printed.count(item["id"]) == 2


def test_events_show_names_as_they_are() -> None:
    stream = io.StringIO()
    # A console of the SDK's user, which replaces emoji by default.
    console = Console(file=stream, force_terminal=False)
    name = "ft:ticket:new:x [red]x[/red]"
    jobs = SimpleNamespace(events=lambda *_, **__: [{"message": name}], get=lambda _: {})
    follow_job(cast("Windlass", SimpleNamespace(jobs=jobs)), "ftjob-1", console)
    with transfer(name, 1, console):
        pass
    assert stream.getvalue().count(name) == 2


ROWS = [
    ["ID", "STATE", "BASE", "MODEL", "CREATED"],
    ["ftjob-abcdefghijklmnopqrstuvwx", "succeeded", "tiny-llama",
     "ft:tiny-llama:acme:ticket:x1Y2z3A4", "2026-11-23 20:00:00"],
]  # fmt: skip


@pytest.mark.parametrize("width", [20, 56, 80, 200])
def test_rows_fit_a_terminal(width: int) -> None:
    rows, left_out = fitted(ROWS, width)
    assert max(map(len, aligned(rows))) <= width
    assert len(rows[0]) + len(left_out) == len(ROWS[0])
    assert left_out == ROWS[0][len(rows[0]) :]
    if width > 30:
        assert rows[1][0] == ROWS[1][0], "ids are there to be copied"
    if width == 200:
        assert rows == ROWS


def test_of_nothing_nothing_is_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "8")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    out = Output(OutputFormat.TABLE, quiet=False, color=False)
    out.items([], COLUMNS)
    assert "Not shown" not in capsys.readouterr().err
    out.items(ITEMS, COLUMNS)
    assert "Not shown: STATE, SIZE" in capsys.readouterr().err


def test_a_cut_name_keeps_both_ends_and_prose_its_beginning() -> None:
    assert shortened("ft:tiny-llama:acme:ticket:x1Y2z3A4", 16) == "ft:tiny-\u20261Y2z3A4"
    moments = [shortened("2026-11-23 20:01:02", width) for width in (19, 18, 11, 10, 8)]
    assert moments == [
        "2026-11-23 20:01:02", "2026-11-23 20:01", "11-23 20:01", "2026-11-23", "11-23",
    ]  # fmt: skip
    assert shortened("It waits for a GPU", 11) == "It waits f\u2026"
    assert shortened("short", 5) == "short"


def listed(numbers: int, capsys: pytest.CaptureFixture[str], **how: Any) -> tuple[int, str]:
    call = Call(Flags(), Output(OutputFormat.NAME, quiet=how.pop("quiet", False), color=False))
    show_list(call, ({"id": str(n)} for n in range(numbers)), {}, limit=2, **how)
    told = capsys.readouterr()
    return len(told.out.splitlines()), told.err


def test_a_list_tells_how_much_it_leaves_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert listed(2, capsys) == (2, "")
    assert listed(5, capsys) == (2, "3 more; --all shows them.\n")
    assert listed(5000, capsys) == (2, "More than 1000 more; --all shows them.\n")
    assert listed(5, capsys, everything=True) == (5, "")
    assert listed(5, capsys, quiet=True) == (2, "")


def test_a_slow_call_says_whom_it_waits_for_unless_something_is_drawn(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "QUIET_SECONDS", 0.0)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    told = ""

    def shown() -> bool:
        nonlocal told
        told += capsys.readouterr().err
        return "waiting for http://windlass" in told

    out = Output(OutputFormat.TABLE, quiet=False, color=False)
    with out.awaiting("waiting for http://windlass"):
        wait_until(shown, "the line")
    out.console()
    assert isinstance(out.awaiting("waiting"), nullcontext)


def cell(item: Item, columns: Columns, name: str) -> str:
    (row,) = cells([item], columns)
    return dict(zip(columns, row, strict=True))[name]


@pytest.mark.parametrize(
    ("item", "text"),
    [({"cache_percent": 85}, "85%"), ({"cache_percent": 0}, "0%"), ({"cache_percent": None}, "-"),
     ({}, "-")],
)  # fmt: skip
def test_the_use_of_a_cache_is_blank_where_it_is_not_known(item: Item, text: str) -> None:
    assert cell(item, engines.COLUMNS, "CACHE") == text


@pytest.mark.parametrize(
    ("item", "text"),
    [
        ({"max_replicas": 3, "target_requests": 4, "target_cache": 80}, "4 requests, cache 80%"),
        (
            {"max_replicas": 3, "target_gpu": 70, "target_wait_seconds": 5},
            "8 requests, GPU 70%, wait 5 s",
        ),
        ({"max_replicas": 3, "target_requests": 0, "target_cache": 0}, "8 requests"),
        ({"max_replicas": 3, "target_requests": 4}, "4 requests"),
        ({"max_replicas": 0, "target_requests": 4, "target_cache": 80}, "-"),
        ({}, "-"),
    ],
)
def test_targets_are_shown_where_load_decides(item: Item, text: str) -> None:
    known = {"model": "m", "min_replicas": 1, "ready_replicas": 1}
    assert cell(known | item, serving.COLUMNS, "TARGET") == text


def test_an_adapter_with_engines_of_its_own_is_shown() -> None:
    known: Item = {"model": "ft:a", "min_replicas": 1, "ready_replicas": 1, "gpus": 2}
    assert cell(known | {"dedicated": True}, serving.COLUMNS, "ARGUMENTS") == "gpus=2 dedicated=yes"
    assert cell(known | {"dedicated": False}, serving.COLUMNS, "ARGUMENTS") == "gpus=2"
