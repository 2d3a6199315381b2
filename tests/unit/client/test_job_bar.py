"""What is shown of a job while its events are silent."""

import io
import re
import time
from collections.abc import Iterator
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

import pytest
from rich.console import Console
from tests.support.waiting import wait_until

from windlass.client import Windlass
from windlass.client.display import job_activity
from windlass.client.display.job_activity import activity, course
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
        (job("running", phase="exporting"), "writing other forms of the model"),
        (job("finalizing"), "registering the model"),
        (job("finalizing", "No answer"), "waiting: No answer"),
        (job("succeeded", phase="uploading"), ""),
        ({}, ""),
    ],
)
def test_a_job_says_what_it_does(found: dict[str, Any], words: str) -> None:
    assert activity(found) == words


def test_a_training_says_how_it_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: 1000.0)
    found = job("running", phase="training")
    assert course(found) == "training"
    found["windlass"]["progress"] |= {"train_mean_reward": 0.5, "train_loss": -1e-9}
    found["estimated_finish"] = 1178
    assert course(found) == "reward 0.5 · loss 0 · 2:58 left"
    assert course(found | {"estimated_finish": 999}) == "reward 0.5 · loss 0 · 0:00 left"
    assert course(job("succeeded")) == ""


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


def test_a_job_that_ended_early_has_no_time_left() -> None:
    bar = JobBar()
    for step in (1, 2):
        bar.take(metrics(step, train_loss=2.0))
    assert bar.describe() == "loss 2 · 0:02 left"
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
    if terminal:
        assert "Training begins at step 1." in shown
        assert "4/4 loss 0.5" in shown
    else:
        assert shown.count("No cluster has 8 GPUs") == 1
        assert "\x1b" not in shown


class Stamped(io.StringIO):
    """What was written, line by line, and when."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[tuple[float, str]] = []

    def write(self, text: str) -> int:
        self.lines += [(time.monotonic(), line) for line in text.splitlines()]
        return super().write(text)

    def wait_for(self, words: str) -> None:
        """Waits until they were written."""
        wait_until(lambda: words in self.getvalue(), words, every=0.001)


def test_elsewhere_a_second_has_one_line_that_loses_nothing_of_weight(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(job_activity, "LOOK_SECONDS", 0.1)
    shown = Stamped()

    def events(job_id: str, *, after: str = "") -> Iterator[dict[str, Any]]:
        yield {"message": "Created ftjob-1"}
        for burst in "abc":
            yield from (metrics(step) for step in range(1, 4))
            yield {"level": "warn", "message": f"careful {burst}"}
            yield {"level": "error", "message": f"wrong {burst}"}
            yield {"message": f"old {burst}"}
            yield {"message": f"new {burst}"}
            shown.wait_for(f"new {burst}")
        yield metrics(4) | {"message": "Step 4/4"}
        yield {"level": "info", "message": "nearly"}
        yield {"level": "info", "message": "the end"}

    jobs = SimpleNamespace(events=events, get=lambda job_id: job("running"))
    client = cast(Windlass, SimpleNamespace(jobs=jobs))
    follow_job(client, "ftjob-1", Console(file=shown, force_terminal=False, width=20))
    said = " | ".join(line for _, line in shown.lines)
    bursts = [f"warn: careful {burst} | error: wrong {burst} | new {burst}" for burst in "abc"]
    assert re.sub(r"\d\d:\d\d:\d\d  ", "", said) == " | ".join(
        ["Created ftjob-1", *bursts, "Step 4/4", "the end"]
    )
    times = [at for at, _ in shown.lines]
    assert all(later - earlier >= 0.1 for earlier, later in pairwise(times))
