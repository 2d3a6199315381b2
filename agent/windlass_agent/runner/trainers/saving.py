"""Schedule of checkpoints between the ends of epochs."""

import argparse
import time
from collections.abc import Callable, Sequence

from windlass.backends.saving import DEFAULT_SAVE_MINUTES, MINUTES_OPTION, STEPS_OPTION


class SaveClock:
    """Says when a state is due: at each multiple of `steps`, and `minutes` after the last save."""

    def __init__(
        self,
        *,
        steps: int | None = None,
        minutes: float | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._steps = steps
        self._seconds = 60 * (DEFAULT_SAVE_MINUTES if minutes is None else minutes)
        self._now = now
        self._saved_at = now()

    def restart(self) -> None:
        """Counts the minutes from now: training begins, or something was just saved."""
        self._saved_at = self._now()

    def is_due(self, step: int) -> bool:
        """Returns True if the state is to be saved after this step."""
        if self._steps is not None and step % self._steps == 0:
            return True
        return self._now() - self._saved_at >= self._seconds


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options that `windlass.backends.saving` writes."""
    parser.add_argument(STEPS_OPTION, dest="steps", type=int)
    parser.add_argument(MINUTES_OPTION, dest="minutes", type=float)


def split_options(argv: Sequence[str]) -> tuple[SaveClock, list[str]]:
    """Returns the clock that a trainer's arguments ask for, and the other arguments."""
    parser = argparse.ArgumentParser(allow_abbrev=False, add_help=False)
    add_options(parser)
    ours, others = parser.parse_known_args(argv)
    return SaveClock(steps=ours.steps, minutes=ours.minutes), others
