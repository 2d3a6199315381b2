"""The voice of the demo: lines, and at a terminal what is being waited for."""

import io
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TextIO, cast

from rich.console import Console
from rich.text import Text

from windlass.client.display.waiting import WaitingLine, waiting

PACE_SECONDS = 1.0


class PacedStream(io.TextIOBase):
    """A stream on which writes are a second apart; what one write holds stays together."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic):
        self._stream = stream
        self._clock = clock
        self._free_at = clock()

    @property
    def encoding(self) -> str:  # type: ignore[override]  # read-only here
        """The encoding of the stream beneath."""
        return self._stream.encoding

    def write(self, text: str) -> int:
        """Writes once a second has passed since the last write."""
        time.sleep(max(0.0, self._free_at - self._clock()))
        written = self._stream.write(text)
        self._stream.flush()
        self._free_at = self._clock() + PACE_SECONDS
        return written


class Narrator:
    """Tells what the demo does; where there is no terminal, at most a line a second."""

    def __init__(self, stream: TextIO | None = None) -> None:
        stream = stream or sys.stdout
        paced = stream if stream.isatty() else cast(TextIO, PacedStream(stream))
        self.console = Console(file=paced, emoji=False, markup=False, highlight=False)

    def say(self, *lines: str | Text, style: str = "") -> None:
        """Prints lines as they are, together."""
        self.console.print(*lines, sep="\n", style=style or None, soft_wrap=True)

    def waiting(self, reason: str) -> AbstractContextManager[WaitingLine]:
        """Shows at a terminal, while the block runs, what it waits for and for how long."""
        return waiting((lambda: self.console) if self.console.is_terminal else None, reason)
