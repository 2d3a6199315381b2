"""Signals that end the demo: Ctrl-C, `kill`, a closed terminal."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """Raises KeyboardInterrupt for the first signal, and for no other: the end is under way."""

    def __init__(self) -> None:
        self.came = False
        self._is_held = False
        self._terminals: tuple[int, ...] = ()

    def install(self) -> None:
        """Takes the signals over, but for those that `nohup` and the like have ignored."""
        self._terminals = tuple(number for number in range(3) if os.isatty(number))
        for number in _ENDS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._take)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Lets the block run to its end, and interrupts after it."""
        before, self._is_held = self.came, True
        try:
            yield
        finally:
            self._is_held = False
        if self.came and not before:
            raise KeyboardInterrupt

    def _take(self, number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGHUP:
            self._leave_terminal()
        before, self.came = self.came, True
        if not before and not self._is_held:
            raise KeyboardInterrupt

    def _leave_terminal(self) -> None:
        """Has the rest printed to nowhere, since a terminal that is gone refuses it."""
        nowhere = os.open(os.devnull, os.O_RDWR)
        for number in self._terminals:
            os.dup2(nowhere, number)


INTERRUPTS = Interrupts()
