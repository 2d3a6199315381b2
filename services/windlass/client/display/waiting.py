"""A line on a terminal that says what is being waited for, and for how long."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from windlass.client.display.text import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

# What comes sooner needs no line, which would only flicker.
QUIET_SECONDS = 0.5


class WaitingLine:
    """Appears after `QUIET_SECONDS`, and is gone after `end`."""

    def __init__(self, console: "Callable[[], Console] | None", reason: str):
        self._console = console
        self._reason = reason
        self._lock = threading.Lock()
        self._view: Progress | None = None
        self._ended = console is None
        # Another thread shows it: this one is busy waiting.
        self._timer = threading.Timer(QUIET_SECONDS, self._begin)
        self._timer.daemon = True
        if console is not None:
            self._timer.start()

    def say(self, reason: str) -> None:
        """Replaces the reason."""
        with self._lock:
            self._reason = reason
            if self._view is not None:
                self._view.update(self._view.task_ids[0], description=printable(reason))

    def end(self) -> None:
        """Removes the line."""
        self._timer.cancel()
        with self._lock:
            self._ended = True
            if self._view is not None:
                self._view.stop()
                self._view = None

    def _begin(self) -> None:
        from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        with self._lock:
            if self._ended or self._console is None:
                return
            self._view = Progress(
                SpinnerColumn(),
                TextColumn("{task.description}", markup=False),
                TimeElapsedColumn(),
                console=self._console(),
                transient=True,
            )
            self._view.add_task(printable(self._reason), total=None)
            self._view.start()


@contextmanager
def waiting(console: "Callable[[], Console] | None", reason: str) -> Iterator[WaitingLine]:
    """Shows the reason of a wait while the block runs, or until the line is ended.

    Without a console nothing is shown.
    """
    line = WaitingLine(console, reason)
    try:
        yield line
    finally:
        line.end()
