"""Timeouts of tests: generous for what must become true, exact where a second counts."""

import asyncio
import inspect
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, TypeVar, overload

T = TypeVar("T")

# For what comes true at once on a machine with nothing else to do. Nobody waits longer than needed.
PATIENCE = 60.0
_LOOK_SECONDS = 0.01
# Conditions without a loop mostly start a process or ask over HTTP.
_ASK_SECONDS = 0.1
_PRESSURE = Path("/proc/pressure/cpu")


@overload
async def until(
    condition: Callable[[], Awaitable[T | None]],
    seconds: float = PATIENCE,
    *,
    holds: Callable[[T], object] = bool,
) -> T: ...


@overload
async def until(
    condition: Callable[[], T | None],
    seconds: float = PATIENCE,
    *,
    holds: Callable[[T], object] = bool,
) -> T: ...


async def until(
    condition: Callable[[], Any],
    seconds: float = PATIENCE,
    *,
    holds: Callable[[Any], object] = bool,
) -> Any:
    """The first answer of a condition that `holds`: a true one, where nothing else is said.

    The condition may be a coroutine function, and answers None while it has no answer. Raises
    AssertionError with the last answer after `seconds`.
    """
    deadline = time.monotonic() + seconds
    while True:
        found = condition()
        if inspect.isawaitable(found):
            found = await found
        if found is not None and holds(found):
            return found
        assert time.monotonic() < deadline, f"it did not come true in time: {found!r}"
        await asyncio.sleep(_LOOK_SECONDS)


def wait_until(
    condition: Callable[[], T | None],
    what: str = "",
    seconds: float = 3 * PATIENCE,
    *,
    every: float = _ASK_SECONDS,
) -> T:
    """The first true answer of a condition, for tests without a loop.

    Raises TimeoutError that names `what` after `seconds`.
    """
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds:.0f} s: {what or condition}")
        time.sleep(every)
    return found


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
