"""The first hour as docs/getting-started prints it: what it shows is what a newcomer gets."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.e2e.first_hour.page import COLUMNS, Step, stable, steps, with_transcript
from tests.e2e.first_hour.player import PAGE, Newcomer, prepare
from tests.support.environments import postgres

pytestmark = pytest.mark.torch
NARROW, WIDE = 56, 200
NOBODY = 65534
# Commands that only look may be repeated at other widths.
LOOKS = ("windlass jobs list", "windlass jobs get", "windlass models list", "windlass files check")


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


def test_the_page_shows_what_a_terminal_shows(base_folder: Path) -> None:
    page = steps(PAGE.read_text())
    assert len(page) > 15
    with newcomer(base_folder, COLUMNS) as someone:
        for step in page:
            printed = someone.play(step.command)
            assert printed.code == step.code, printed
            assert stable(printed.lines) == stable(step.printed), (
                f"{step.command} prints otherwise; python -m tests.e2e.first_hour writes it anew"
            )
        for step in page:
            if step.command.startswith(LOOKS):
                _fits(someone, step)


def _fits(someone: Newcomer, step: Step) -> None:
    """What a wide terminal shows of a line a narrow one begins with too, and nothing fails."""
    narrow = someone.play(step.command, columns=NARROW)
    wide = someone.play(step.command, columns=WIDE)
    assert narrow.code == wide.code == 0, (narrow, wide)
    assert wide.lines
    first = [line.split()[0] for line in wide.lines if line[:1].strip()]
    shown = "\n".join(narrow.lines)
    assert all(name in shown for name in first), (narrow, wide)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_user_without_a_terminal_comes_as_far(base_folder: Path) -> None:
    with newcomer(base_folder, None, NOBODY) as someone:
        for step in steps(PAGE.read_text()):
            printed = someone.play(step.command)
            assert printed.code == step.code, (step.command, printed)
            text = "\n".join(printed.lines)
            assert "Traceback" not in text
            assert "\x1b" not in text, step.command


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
