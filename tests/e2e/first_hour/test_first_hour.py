"""The first hour as docs/getting-started prints it: what it shows is what a newcomer gets."""

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.first_hour.layout import faults
from tests.e2e.first_hour.page import COLUMNS, EVENT, Step, again, stable, steps, with_transcript
from tests.e2e.first_hour.player import PAGE, Newcomer, prepare
from tests.e2e.first_hour.terminal import UNBROKEN
from tests.support.environments import postgres

pytestmark = [pytest.mark.torch, pytest.mark.timeout(600)]
NARROW, WIDE = 56, 200
NOBODY = 65534
BAR = "━"


@contextmanager
def newcomer(model: Path, columns: int | None, account: int | None = None) -> Iterator[Newcomer]:
    """Somebody with spaces in every path, whose server runs."""
    with tempfile.TemporaryDirectory(prefix="first hour ") as name:
        folder = Path(name)
        prepare(folder, model)
        if account is not None:
            for path in (folder, *folder.rglob("*")):
                os.chown(path, account, account)
        made = Newcomer(folder, columns, account)
        with made.server():
            yield made
        postgres.remove_database(folder / "data")


def plays_as_printed(someone: Newcomer, page: list[Step]) -> None:
    """Plays the page on its terminal, and compares what is shown with what is printed there."""
    for step in page:
        printed = someone.play(step.command, columns=COLUMNS)
        assert printed.code == step.code, printed
        assert stable(printed.lines) == stable(step.printed), (
            f"{step.command} prints otherwise; python -m tests.e2e.first_hour writes it anew"
        )


# A user, unlike this process; where this one is no root, it is a user itself.
@pytest.mark.parametrize(
    ("others", "account"),
    [
        pytest.param((), NOBODY if os.geteuid() == 0 else None, id="one"),
        pytest.param((NARROW, WIDE), None, id="three", marks=pytest.mark.long),
    ],
)
def test_the_page_shows_what_a_terminal_shows(
    base_folder: Path, others: tuple[int, ...], account: int | None
) -> None:
    page = steps(PAGE.read_text())
    assert len(page) > 15
    with newcomer(base_folder, COLUMNS, account) as someone:
        plays_as_printed(someone, page)
        estimates_are_true(someone)
        for columns in others:
            for step in page:
                if command := again(step.command, f"at-{columns}"):
                    fits(someone, command, columns, step.code)


def fits(someone: Newcomer, command: str, columns: int, code: int) -> None:
    """Data fit the terminal, and so do bars.

    Prose, events among it, is the terminal's to break: a command in it can be copied whole.
    """
    data, prose = someone.play_apart(command, columns)
    shown = (command, data, prose)
    assert (data.code, "Traceback" in "".join(prose)) == (code, False), shown
    lines = [line for line in data.lines if not EVENT.match(line)]
    assert lines or prose, shown
    bars = [line for line in prose if BAR in line]
    assert faults([*lines, *bars], columns) == [], shown


def estimates_are_true(someone: Newcomer) -> None:
    """The tokens of a training are those that it had, and its speed tells the time of another."""
    job = document(someone, 'windlass jobs get "$JOB"')
    asked = "windlass files check train.jsonl --epochs 8"
    exact = document(someone, f'{asked} --model "my model" --tokens-per-second 100')
    assert exact["training"]["tokens"] == job["trained_tokens"]
    assert exact["time"]["seconds"] == -(-job["trained_tokens"] // 100)
    measured = document(someone, f"{asked} --model my-model")["time"]
    assert measured["seconds"] > 0
    assert job["id"] in measured["basis"]


def document(someone: Newcomer, command: str) -> dict[str, Any]:
    printed = someone.play(f"{command} -o json 2>/dev/null", columns=UNBROKEN)
    assert printed.code == 0, printed
    found: dict[str, Any] = json.loads("\n".join(printed.lines))
    return found


@pytest.mark.long
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_user_comes_as_far_without_a_terminal(base_folder: Path) -> None:
    page = steps(PAGE.read_text())
    with newcomer(base_folder, None, NOBODY) as someone:
        for step in page:
            printed = someone.play(step.command)
            assert printed.code == step.code, (step.command, printed)
            text = "\n".join(printed.lines)
            assert "Traceback" not in text
            assert "\x1b" not in text, step.command
        # In an organization of its own the page begins anew.
        someone.variables.clear()
        someone.play("WINDLASS_ORGANIZATION=$(windlass orgs create again -o name)")
        someone.play("WINDLASS_PROJECT=$(windlass projects list -o name)")
        (someone.folder / "my backup").unlink()
        plays_as_printed(someone, page)


def test_what_is_no_table_any_more_is_noticed() -> None:
    fine = ["ID    STATE  MODEL", "file  ready  ft:m…rm", "job   -      x"]
    assert faults(fine, 20) == []
    assert len(faults(fine, 18)) == 1
    for row in ("fi…e  ready  x", "file  readandmore  x", "job   a…     x"):
        assert len(faults([*fine, row], 20)) == 1, row
    assert faults(["id:  file-1", "a sentence that is no table"], 30) == []


def test_a_transcript_replaces_what_commands_printed() -> None:
    page = "# A\n\n```console\nmake\n```\n\n```console\n$ one\nold\n$ two\n```\nEnd.\n"
    played = [Step("one", ("new", "line")), Step("two", ("2",))]
    assert steps(page) == [Step("one", ("old",)), Step("two")]
    assert steps(with_transcript(page, played)) == played
    with pytest.raises(ValueError, match="other was played for one"):
        with_transcript(page, [Step("other"), Step("two")])


def test_runs_are_compared_without_what_differs_from_run_to_run() -> None:
    one = ["00:01 ftjob-a1 at 3 kB/s", "━━━━ 51/51 in /tmp/first hour x/y"]
    other = ["00:59 ftjob-zz", "at 9,3 kB/s ━━━╸ 7/51 in /var/x"]
    assert stable(one) == stable(other)
    assert stable(one) != stable(["00:01 ftjob-a1 failed"])
    began, got = "00:01:00  The job began.", "00:01:01  It got its files."
    assert stable([began, got, "it ended"]) == stable([got, began, "it ended"])
    assert stable([began, got, "it ended"]) != stable([began, "it ended", got])
