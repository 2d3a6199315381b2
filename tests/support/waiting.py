"""Timeouts of tests: generous for what must become true, exact where a second counts."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

# For what comes true at once on a machine with nothing else to do. Nobody waits longer than needed.
PATIENCE = 60.0
_PRESSURE = Path("/proc/pressure/cpu")


class Watch:
    """Seconds since it was made, less those in which something waited for a processor.

    So a bar of the product holds for the product, and not for what else the machine does.
    """

    def __init__(self) -> None:
        self._began = (time.monotonic(), _stalled())

    def seconds(self) -> float:
        began, stalled = self._began
        return time.monotonic() - began - (_stalled() - stalled)


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """The block takes at most so many seconds of a machine that has processors to spare."""
    watch = Watch()
    yield
    assert watch.seconds() <= seconds, f"it took {watch.seconds():.2f} s"


@asynccontextmanager
async def soon(seconds: float = PATIENCE) -> AsyncIterator[None]:
    """The same, and given up after PATIENCE."""
    with within(seconds):
        async with asyncio.timeout(PATIENCE):
            yield


def _stalled() -> float:
    """Seconds since the machine began in which something waited for a processor, where known."""
    try:
        some = _PRESSURE.read_text().splitlines()[0]
    except (OSError, IndexError):
        return 0.0
    return int(some.rpartition("=")[2]) / 1e6
