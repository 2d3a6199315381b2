"""Following a job: one bar on a terminal, a line per event elsewhere."""

import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from windlass.client.display import job_activity
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
    for) below the job's messages; anything else a line a second at most: the latest event or
    reason to wait, and before it what no later one stands for, such as warnings.
    """
    events = client.jobs.events(job_id, after=after)
    if console.is_terminal:
        _draw(client, job_id, events, console)
        return client.jobs.get(job_id)
    lines = PacedLines(console)
    with watched_activity(client, job_id, lines.look, queue_reason):
        for event in events:
            lines.take(event)
    lines.finish()
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
        """Leaves what was measured last; of a job that ended early no time is left."""
        with self._lock:
            self._activity, self._ended = "", True
            self._training = self._training.interrupted()

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
        parts: list[Any] = [] if self._ended else [self._spinner]
        if self._training.step:
            step, total = self._training.step, self._training.total
            parts.append(ProgressBar(total=total or None, completed=step, width=_BAR_WIDTH))
            parts.append(Text(f"{step}/{total or '?'}"))
        for _ in parts:
            line.add_column()
        line.add_column(no_wrap=True, overflow="ellipsis")
        line.add_row(*parts, Text(self.describe()))
        return line


class PacedLines:
    """Prints a line whenever it is looked at, if there is news since the last time.

    The latest event stands for the others, but for the first, warnings, errors and the metrics
    of the last step.
    """

    def __init__(self, console: "Console") -> None:
        self._console = console
        # Events come in one thread, looks in another.
        self._lock = threading.Lock()
        self._kept: list[str] = []
        self._latest = ""
        self._has_begun = False
        self._printed_at = 0.0
        self._ended = False
        self._reasons = _lasting(
            lambda words: self._add({"created_at": time.time(), "message": words})
        )

    def take(self, event: dict[str, Any]) -> None:
        """Takes an event."""
        with self._lock:
            # The first names the job.
            self._add(event, is_kept=not self._has_begun or _is_kept(event))
            self._has_begun = True

    def look(self, reason: str) -> None:
        """Prints a line if there is news; `reason` is what the job waits for now."""
        with self._lock:
            if self._ended:
                return
            self._reasons(reason)
            if self._kept:
                self._print(self._kept.pop(0))
            elif self._latest:
                line, self._latest = self._latest, ""
                self._print(line)

    def finish(self) -> None:
        """Prints the rest as one line, once it is time for it; later looks print nothing."""
        with self._lock:
            self._ended = True
            time.sleep(max(0.0, self._printed_at + job_activity.LOOK_SECONDS - time.monotonic()))
            if rest := [line for line in (*self._kept, self._latest) if line]:
                self._print(" | ".join(rest))

    def _add(self, event: dict[str, Any], *, is_kept: bool = False) -> None:
        line, self._latest = event_line(event), ""
        if is_kept:
            self._kept.append(line)
        else:
            self._latest = line

    def _print(self, line: str) -> None:
        say(self._console, line)
        self._printed_at = time.monotonic()


def _is_kept(event: dict[str, Any]) -> bool:
    data = event.get("data") or {}
    is_last_step = event.get("type") == "metrics" and data.get("step") == data.get("total_steps")
    return is_last_step or event.get("level") in ("warn", "error")


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
