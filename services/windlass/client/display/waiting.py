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
_BAR_COLUMNS = 20


class WaitingLine:
    """Appears after `QUIET_SECONDS`, and is gone after `end`.

    It has a bar while `total`, the bytes of the work, is known.
    """

    def __init__(
        self, console: "Callable[[], Console] | None", reason: str, total: int | None = None
    ):
        self._console = console
        self._reason = reason
        self._total = total
        self._done = 0
        self._lock = threading.Lock()
        self._view: Progress | None = None
        self._ended = console is None
        # Another thread shows it: this one is busy waiting.
        self._timer = threading.Timer(QUIET_SECONDS, self._begin)
        self._timer.daemon = True
        if console is not None:
            self._timer.start()

    def say(self, reason: str, total: int | None = None) -> None:
        """Replaces the reason; `total` is that of the work which begins, if it is known."""
        with self._lock:
            is_other = (total, self._total) != (None, None)
            self._reason, self._total, self._done = reason, total, 0
            if self._view is not None and is_other:
                self._view.stop()
                self._show()
            elif self._view is not None:
                self._view.update(self._view.task_ids[0], description=printable(reason))

    def advance(self, size: int) -> None:
        """Adds to the bytes that are done."""
        with self._lock:
            self._done += size
            if self._view is not None:
                self._view.update(self._view.task_ids[0], completed=self._done)

    def end(self) -> None:
        """Removes the line."""
        self._timer.cancel()
        with self._lock:
            self._ended = True
            if self._view is not None:
                self._view.stop()
                self._view = None

    def _begin(self) -> None:
        with self._lock:
            if not self._ended:
                self._show()

    def _show(self) -> None:
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            Progress,
            ProgressColumn,
            SpinnerColumn,
            TextColumn,
            TimeElapsedColumn,
        )

        if self._console is None:
            return
        columns: list[ProgressColumn] = [SpinnerColumn()]
        columns.append(TextColumn("{task.description}", markup=False))
        if self._total is not None:
            columns += [BarColumn(_BAR_COLUMNS), DownloadColumn()]
        columns.append(TimeElapsedColumn())
        self._view = Progress(*columns, console=self._console(), transient=True)
        self._view.add_task(printable(self._reason), total=self._total, completed=self._done)
        self._view.start()


@contextmanager
def waiting(
    console: "Callable[[], Console] | None", reason: str, total: int | None = None
) -> Iterator[WaitingLine]:
    """Shows the reason of a wait while the block runs, or until the line is ended.

    Work of `total` bytes has a bar. Without a console nothing is shown.
    """
    line = WaitingLine(console, reason, total)
    try:
        yield line
    finally:
        line.end()
