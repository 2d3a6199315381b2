"""Waiting in tests: generous for what must become true, exact where a second counts."""

import asyncio
import inspect
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, TypeVar, overload

T = TypeVar("T")

# For what comes true at once on an idle machine; a wait ends as soon as it is over.
PATIENCE = 60.0
_LOOK_SECONDS = 0.01
_LOOKS = 10
# Conditions without an event loop mostly start a process or ask over HTTP.
_ASK_SECONDS = 0.1
# A processor that a condition keeps busy is one that what it waits for does not have.
_REST, _MOST_SECONDS = 2.0, 1.0
# The part of a time that a Watch counts at least.
_COUNTED = 0.2
_PRESSURE = Path("/proc/pressure/cpu")


@overload
async def until(
    condition: Callable[[], Awaitable[T | None]],
    seconds: float = PATIENCE,
    *,
    holds: Callable[[T], object] = bool,
    every: float | None = None,
) -> T: ...


@overload
async def until(
    condition: Callable[[], T | None],
    seconds: float = PATIENCE,
    *,
    holds: Callable[[T], object] = bool,
    every: float | None = None,
) -> T: ...


async def until(
    condition: Callable[[], Any],
    seconds: float = PATIENCE,
    *,
    holds: Callable[[Any], object] = bool,
    every: float | None = None,
) -> Any:
    """Returns the first answer of a condition that `holds`; by default, the first true one.

    The condition may be a coroutine function, and returns None while it has no answer. Without
    `every`, what takes long to ask is asked less often. Raises AssertionError with the last answer
    after `seconds` by a Watch, and after PATIENCE or longer `seconds` in any case.
    """
    watch = Watch()
    while True:
        asked, is_over = time.monotonic(), watch.has_run(seconds)
        found = await _answer(condition)
        if found is not None and holds(found):
            return found
        # By when it was asked: an answer may come late from a busy machine.
        assert not is_over, f"it did not come true in time: {found!r}"
        left = seconds - watch.seconds()
        await asyncio.sleep(_rest(_LOOK_SECONDS, asked, left) if every is None else every)


async def stays(condition: Callable[[], Any], seconds: float = 0.3) -> None:
    """Asserts that a condition, perhaps a coroutine function, is true for `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        assert await _answer(condition), "it did not stay true"
        if time.monotonic() > deadline:
            return
        await asyncio.sleep(_LOOK_SECONDS)


async def settled(read: Callable[[], T], seconds: float = 0.3) -> T:
    """Returns a value once ten looks in a row, over `seconds` at least, found it unchanged.

    By looks, since what a stalled process would change stalls with it. Raises AssertionError if it
    goes on changing for PATIENCE.
    """
    began, last, same = time.monotonic(), read(), 0
    while same < _LOOKS:
        await asyncio.sleep(seconds / _LOOKS)
        found = read()
        same = same + 1 if found == last else 0
        last = found
        assert same or time.monotonic() - began < PATIENCE, f"it goes on changing: {found!r}"
    return last


def wait_until(
    condition: Callable[[], T | None],
    what: str = "",
    seconds: float = 3 * PATIENCE,
    *,
    every: float | None = None,
) -> T:
    """Returns the first true answer of a condition, for tests without an event loop.

    Without `every`, what takes long to ask is asked less often. Raises TimeoutError that names
    `what` after `seconds`, measured as `until` does.
    """
    watch = Watch()
    while True:
        asked, is_over = time.monotonic(), watch.has_run(seconds)
        if found := condition():
            return found
        if is_over:
            raise TimeoutError(f"not within {seconds:.0f} s: {what or condition}")
        left = seconds - watch.seconds()
        time.sleep(_rest(_ASK_SECONDS, asked, left) if every is None else every)


class Watch:
    """A stopwatch that does not count time in which some task waited for a processor.

    A limit measured with it holds for the product, whatever else runs on the machine. It counts a
    fifth of all time at least: on a machine where tasks always wait, a limit of a second would
    otherwise let anything pass.
    """

    def __init__(self) -> None:
        self._began = (time.monotonic(), _stalled())

    def seconds(self) -> float:
        began, stalled = self._began
        passed = time.monotonic() - began
        return max(passed - (_stalled() - stalled), _COUNTED * passed)

    def has_run(self, seconds: float) -> bool:
        """Whether it counts so many; whatever it counts, once PATIENCE and they have passed."""
        passed = time.monotonic() - self._began[0]
        return passed >= max(seconds, PATIENCE) or self.seconds() >= seconds


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Asserts that the block takes at most `seconds` by a Watch."""
    watch = Watch()
    yield
    took = watch.seconds()
    assert took <= seconds, f"it took {took:.2f} s"


@asynccontextmanager
async def soon(seconds: float = PATIENCE) -> AsyncIterator[None]:
    """Asserts the same as `within`, and cancels the block after PATIENCE."""
    with within(seconds):
        async with asyncio.timeout(PATIENCE):
            yield


def _rest(least: float, asked: float, left: float) -> float:
    """Seconds until the next look, by how long the one that began at `asked` took.

    What has a second to come true is looked at when that is over.
    """
    return max(least, min(_REST * (time.monotonic() - asked), _MOST_SECONDS, left))


async def _answer(condition: Callable[[], Any]) -> Any:
    found = condition()
    return await found if inspect.isawaitable(found) else found


def _stalled() -> float:
    """Returns the seconds since the start in which some task waited for a processor, or 0."""
    try:
        some = _PRESSURE.read_text().splitlines()[0]
    except (OSError, IndexError):
        return 0.0
    return int(some.rpartition("=")[2]) / 1e6
