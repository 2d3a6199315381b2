"""Showing work that takes a while: bars on a terminal, plain lines elsewhere."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from windlass.client.display.text import human_size, printable
from windlass.client.resources.files import Progress as BytesSeen
from windlass.client.resources.files import ignore

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

    from windlass.client.windlass import Windlass


@dataclass(frozen=True, slots=True)
class TrainingProgress:
    """State of a training by the metrics events seen so far."""

    step: int = 0
    total: int = 0
    loss: float | None = None
    tokens_per_second: float | None = None
    # The first step of this attempt and when it was seen (Unix seconds): what speed is measured by.
    since_step: int = 0
    since: float = 0.0
    at: float = 0.0

    def after(self, event: dict[str, Any]) -> "TrainingProgress":
        """The state once `event` is known; one that is no metrics event changes nothing."""
        data = event.get("data")
        if event.get("type") != "metrics" or not isinstance(data, dict):
            return self
        step, at = int(data.get("step") or 0), float(event.get("created_at") or 0)
        # A resumed attempt begins at an earlier step, and with a clock of its own.
        again = not self.since or step < self.step
        return replace(
            self,
            step=step,
            total=int(data.get("total_steps") or self.total),
            loss=data.get("train_loss", self.loss),
            tokens_per_second=data.get("tokens_per_second", self.tokens_per_second),
            since_step=step if again else self.since_step,
            since=at if again else self.since,
            at=at,
        )

    @property
    def seconds_left(self) -> float | None:
        """If the rest goes as this attempt has gone; None while that is unknown."""
        done, spent = self.step - self.since_step, self.at - self.since
        if done <= 0 or spent <= 0 or self.total < self.step:
            return None
        return (self.total - self.step) * spent / done

    def describe(self) -> str:
        """Loss, speed and time left, as far as they are known."""
        parts = []
        if self.loss is not None:
            parts.append(f"loss {self.loss:.4g}")
        if self.tokens_per_second:
            parts.append(f"{self.tokens_per_second:,.0f} tokens/s")
        if (left := self.seconds_left) is not None and self.step < self.total:
            parts.append(f"{duration(left)} left")
        return " · ".join(parts)


def duration(seconds: float) -> str:
    """Minutes and seconds, with hours when there are any."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def follow_job(
    client: "Windlass", job_id: str, console: "Console", *, after: str = ""
) -> dict[str, Any]:
    """Shows a job until it has ended, and answers it.

    A terminal gets one bar (steps, loss, tokens/s, time left) below the job's
    messages; anything else a line per event, but of metrics one for each second.
    """
    events = client.jobs.events(job_id, after=after)
    if console.is_terminal:
        _draw(events, console)
    else:
        for event in _thinned(events):
            _say(console, event_line(event))
    return client.jobs.get(job_id)


def _thinned(events: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Leaves out metrics of a second that had some already, except those of the last step."""
    second = None
    for event in events:
        if event.get("type") == "metrics":
            data = event.get("data") or {}
            is_last = data.get("step") == data.get("total_steps")
            if event.get("created_at") == second and not is_last:
                continue
            second = event.get("created_at")
        yield event


def event_line(event: dict[str, Any]) -> str:
    """One event as a line of text: time, level unless it is only information, message."""
    at = time.strftime("%H:%M:%S", time.localtime(event.get("created_at") or 0))
    level = event.get("level") or "info"
    loud = "" if level == "info" else f"{level}: "
    return f"{at}  {loud}{printable(str(event.get('message') or ''))}"


def _say(console: "Console", line: str, *, soft_wrap: bool = True) -> None:
    # What a tenant names may hold `:ticket:` and `[red]`, and is no markup.
    console.print(line, markup=False, emoji=False, highlight=False, soft_wrap=soft_wrap)


def _draw(events: Iterator[dict[str, Any]], console: "Console") -> None:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn

    columns = (
        SpinnerColumn(),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[said]}", markup=False),
    )
    training = TrainingProgress()
    with Progress(*columns, console=console) as view:
        task = view.add_task("", total=None, said="waiting")
        for event in events:
            before, training = training, training.after(event)
            if training is before:
                _say(view.console, event_line(event), soft_wrap=False)
            else:
                _advance(view, task, training)


def _advance(view: "Progress", task: Any, training: TrainingProgress) -> None:
    view.update(
        task, completed=training.step, total=training.total or None, said=training.describe()
    )


@contextmanager
def transfer(title: str, total: int, console: "Console | None") -> Iterator[BytesSeen]:
    """Yields what to call with every piece of `total` bytes that went by.

    Without a console nothing is shown; a console that is no terminal gets one
    line when all is done.
    """
    if console is None:
        yield ignore
        return
    if not console.is_terminal:
        began = time.monotonic()
        yield ignore
        seconds = max(time.monotonic() - began, 1e-3)
        line = f"{title}: {human_size(total)} in {seconds:.1f} s"
        _say(console, line)
        return
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as view:
        task = view.add_task(printable(title), total=total)
        yield lambda size: view.advance(task, size)
