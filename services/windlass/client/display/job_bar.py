"""Following a job: one bar on a terminal, a line per event elsewhere."""

import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from windlass.client.display.job_activity import queue_reason, watched_activity
from windlass.client.display.progress import TrainingProgress, duration, event_line, say

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from windlass.client.windlass import Windlass

_BAR_WIDTH = 30


def follow_job(
    client: "Windlass", job_id: str, console: "Console", *, after: str = ""
) -> dict[str, Any]:
    """Shows a job until it has ended, and returns it.

    A terminal gets one bar (steps, reward, loss, tokens/s, time left, or what the job waits
    for) below the job's messages; anything else a line per event, but of metrics one for each
    second, and a line for each reason to wait.
    """
    events = client.jobs.events(job_id, after=after)
    if console.is_terminal:
        _draw(client, job_id, events, console)
        return client.jobs.get(job_id)
    reasons = _lasting(lambda words: say(console, event_line(_now(words))))
    with watched_activity(client, job_id, reasons, queue_reason):
        for event in _thinned(events):
            say(console, event_line(event))
    return client.jobs.get(job_id)


class JobBar:
    """A line that shows how far a training is, and what its job does while it does not train."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        from rich.spinner import Spinner

        self._spinner = Spinner("dots")
        self._clock = clock
        # Events come in one thread, activities in another.
        self._lock = threading.Lock()
        self._training = TrainingProgress()
        self._activity = "asking the server"
        self._since = clock()
        self._ended = False

    def take(self, event: dict[str, Any]) -> bool:
        """Takes an event; returns True if it was a measurement."""
        with self._lock:
            before, self._training = self._training, self._training.after(event)
            if self._training is before:
                return False
            self._activity = ""
            return True

    def show(self, activity: str) -> None:
        """Shows what the job does now; empty for training itself."""
        with self._lock:
            if activity != self._activity:
                self._activity, self._since = activity, self._clock()
            if activity:
                self._training = self._training.interrupted()

    def finish(self) -> None:
        """Leaves what was measured last."""
        with self._lock:
            self._activity, self._ended = "", True

    def describe(self) -> str:
        """The activity and how long it lasts, or how the training goes."""
        with self._lock:
            activity, training = self._activity, self._training
        measured = training.describe()
        if self._ended or (measured and not activity):
            return measured
        return f"{activity or 'training'} · {duration(self._clock() - self._since)}"

    def __rich__(self) -> "Table":
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        line = Table.grid(padding=(0, 1))
        line.add_column()
        parts: list[Any] = [Text() if self._ended else self._spinner]
        if self._training.step:
            step, total = self._training.step, self._training.total
            parts.append(ProgressBar(total=total or None, completed=step, width=_BAR_WIDTH))
            parts.append(Text(f"{step}/{total or '?'}"))
            line.add_column()
            line.add_column()
        line.add_column(no_wrap=True, overflow="ellipsis")
        line.add_row(*parts, Text(self.describe()))
        return line


def _draw(
    client: "Windlass", job_id: str, events: Iterator[dict[str, Any]], console: "Console"
) -> None:
    from rich.live import Live

    bar = JobBar()
    with Live(bar, console=console, refresh_per_second=10) as view:
        with watched_activity(client, job_id, bar.show):
            for event in events:
                if not bar.take(event):
                    say(view.console, event_line(event), soft_wrap=False)
        bar.finish()


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


def _lasting(show: Callable[[str], None]) -> Callable[[str], None]:
    """Passes on, once, what two looks in a row found: a reason that passes at once is no news."""
    last = shown = ""

    def look(words: str) -> None:
        nonlocal last, shown
        if words and words == last != shown:
            show(words)
            shown = words
        last, shown = words, shown if words else ""

    return look


def _now(words: str) -> dict[str, Any]:
    return {"created_at": time.time(), "message": words}
