"""What is shown of a job while its events are silent."""

import io
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from rich.console import Console
from tests.support.waiting import wait_until

from windlass.client import Windlass
from windlass.client.display import job_activity
from windlass.client.display.job_activity import activity
from windlass.client.display.job_bar import JobBar, follow_job
from windlass.client.errors import ConnectionFailed


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_activity, "LOOK_SECONDS", 0.01)


def job(state: str, reason: str = "", position: int = 0, phase: str = "") -> dict[str, Any]:
    queue = {"reason": reason or None, "position": position or None}
    return {"windlass": {"state": state, "queue": queue, "progress": {"phase": phase or None}}}


def metrics(step: int, **values: float) -> dict[str, Any]:
    data = {"step": step, "total_steps": 4, "attempt": 1, **values}
    return {"type": "metrics", "created_at": 1000 + step, "data": data}


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (job("validating"), "inspecting the files"),
        (job("queued"), "waiting for a place"),
        (job("queued", "No GPU is free"), "waiting: No GPU is free"),
        (job("queued", "Full\x1b[2J", 3), "waiting, at place 3: Full\N{REPLACEMENT CHARACTER}[2J"),
        (job("starting", "Pulling the image"), "waiting: Pulling the image"),
        (job("starting", "Pulling", phase="preparing"), "getting the model and the files"),
        (job("running", phase="starting"), "starting the trainer"),
        (job("running", phase="training"), ""),
        (job("running", "stale"), ""),
        (job("paused"), "paused, until `windlass jobs resume`"),
        (job("finalizing"), "registering the model"),
        (job("succeeded", phase="uploading"), ""),
        ({}, ""),
    ],
)
def test_a_job_says_what_it_does(found: dict[str, Any], words: str) -> None:
    assert activity(found) == words


def test_the_bar_counts_how_long_a_wait_lasts() -> None:
    now = 0.0
    bar = JobBar(lambda: now)
    bar.show("starting the trainer")
    now = 61.0
    bar.show("starting the trainer")
    assert bar.describe() == "starting the trainer · 1:01"
    assert bar.take(metrics(1, train_loss=2.0))
    assert bar.describe() == "loss 2"
    assert not bar.take({"type": "message", "message": "hello"})
    bar.show("paused")
    bar.finish()
    assert bar.describe() == "loss 2"


class Server:
    """A job that waits until its reason was seen, then trains."""

    def __init__(self, *, terminal: bool):
        self.shown = io.StringIO()
        self.console = Console(file=self.shown, force_terminal=terminal, width=56)
        self.jobs = SimpleNamespace(events=self.events, get=self.get)
        self.away = True

    def get(self, job_id: str) -> dict[str, Any]:
        if self.away:
            raise ConnectionFailed("http://windlass:8000: Connection refused")
        return job("queued", "No cluster has 8 GPUs")

    def events(self, job_id: str, *, after: str = "") -> Iterator[dict[str, Any]]:
        self.until("http://windlass:8000: Connection refused")
        self.away = False
        self.until("waiting: No cluster has 8 GPUs")
        yield {"created_at": 1000, "message": "Training begins at step 1."}
        for step in range(1, 5):
            yield metrics(step, train_loss=0.5)

    def until(self, words: str) -> None:
        wait_until(lambda: words in self.shown.getvalue(), words)


@pytest.mark.parametrize("terminal", [True, False])
def test_a_follower_is_told_why_nothing_happens(terminal: bool) -> None:
    server = Server(terminal=terminal)
    follow_job(cast(Windlass, server), "ftjob-1", server.console)
    shown = server.shown.getvalue()
    assert "Training begins at step 1." in shown
    if terminal:
        assert "4/4 loss 0.5" in shown
    else:
        assert shown.count("No cluster has 8 GPUs") == 1
        assert "\x1b" not in shown
