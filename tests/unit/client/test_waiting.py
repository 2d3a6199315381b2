"""The line about a wait appears late, says what changes, and leaves nothing behind."""

import io
from collections.abc import Callable

import pytest
from rich.console import Console
from tests.support.waiting import wait_until

from windlass.client.display import waiting as module
from windlass.client.display.waiting import waiting


def terminal() -> tuple[io.StringIO, Callable[[], Console]]:
    shown = io.StringIO()
    return shown, lambda: Console(file=shown, force_terminal=True, width=80)


def test_a_wait_says_its_reason_as_it_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "QUIET_SECONDS", 0.0)
    shown, console = terminal()
    with waiting(console, "waiting for [red]\x1b[2Jtoy") as line:
        wait_until(lambda: "waiting for [red]" in shown.getvalue(), "the line")
        line.say("starting the engine")
        wait_until(lambda: "starting the engine" in shown.getvalue(), "the new reason")
        line.end()
        ended = shown.getvalue()
        assert "\x1b[2J" not in ended
        line.say("too late")
    assert shown.getvalue() == ended


def test_a_short_wait_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "QUIET_SECONDS", 60.0)
    shown, console = terminal()
    with waiting(console, "waiting"), waiting(None, "waiting"):
        pass
    assert shown.getvalue() == ""


def test_work_of_known_size_has_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "QUIET_SECONDS", 0.0)
    shown, console = terminal()
    with waiting(console, "reading", 4_000_000) as line:
        wait_until(lambda: "0.0/4.0 MB" in shown.getvalue(), "the bar")
        line.advance(1_000_000)
        line.advance(2_000_000)
        wait_until(lambda: "3.0/4.0 MB" in shown.getvalue(), "the progress")
        line.say("writing")
        wait_until(lambda: "writing" in shown.getvalue(), "other work")
        assert "MB" not in shown.getvalue().partition("writing")[2], "of unknown size"
        line.say("reading again", 5_000)
        wait_until(lambda: "0.0/5.0 kB" in shown.getvalue(), "a new bar")


def test_progress_before_the_line_appears_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "QUIET_SECONDS", 0.1)
    shown, console = terminal()
    with waiting(console, "reading", 4_000_000) as line:
        line.advance(1_000_000)
        wait_until(lambda: "1.0/4.0 MB" in shown.getvalue(), "the line")
