"""One tracker and what waits for it, at its own pace beside the job."""

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TypeVar

from windlass.core.backoff import Backoff
from windlass_agent.runner.protocol.outcome import OutcomeKind
from windlass_agent.runner.reporting.reporter import Reporter
from windlass_agent.runner.tracking.port import Away, Point, TrackedRun, Tracker, TrackerError

T = TypeVar("T")
# What waits for a tracker that is away; beyond, the oldest go.
_POINTS = 10_000
_BATCH = 500
_PACE_SECONDS = 1.0
_LONGEST_PAUSE_SECONDS = 30.0
_LAST_PAUSE_SECONDS = 0.5
# So many failures pass unsaid: a connection is lost now and then.
_QUIET_TRIES = 2


class TrackerFeed:
    """Hands measurements to a tracker until closed; it raises nothing and never holds up."""

    def __init__(self, tracker: Tracker, run: TrackedRun, reporter: Reporter) -> None:
        self._tracker = tracker
        self._run = run
        self._reporter = reporter
        self._points: deque[Point] = deque(maxlen=_POINTS)
        self._changed = asyncio.Event()
        self._closing = asyncio.Event()
        self._ending: tuple[OutcomeKind, Sequence[Path]] | None = None
        self._failures = 0
        self._task = asyncio.create_task(self._live())

    def add(self, point: Point) -> None:
        """Takes a measurement over."""
        self._points.append(point)
        self._changed.set()

    async def close(self, verdict: OutcomeKind, files: Sequence[Path], *, seconds: float) -> None:
        """Returns when all is handed over, after `seconds` at the latest.

        A tracker that does not answer anyway is given a fifth of that.
        """
        self._ending = (verdict, files)
        self._closing.set()
        self._changed.set()
        await asyncio.wait({self._task}, timeout=seconds / 5 if self._failures else seconds)
        if not self._task.done():
            self._task.cancel()
            self._warn("did not take everything before the job ended")

    def cancel(self) -> None:
        """Stops at once."""
        self._task.cancel()

    async def _live(self) -> None:
        try:
            where = await self._patiently(lambda: self._tracker.begin(self._run))
            self._reporter.info(f"{self._tracker.title} shows this job at {where}")
            while self._ending is None or self._points:
                await self._hand_over()
            verdict, files = self._ending
            await self._patiently(lambda: self._tracker.finish(verdict, files))
        except TrackerError as error:
            self._warn(f"receives no more reports of this job: {error}")
        except Exception as error:
            # Whatever an answer is made of: a job must not fail for it.
            name = type(error).__name__
            self._warn(f"receives no more reports of this job: its response is invalid ({name})")

    async def _hand_over(self) -> None:
        if not self._points:
            await self._changed.wait()
            self._changed.clear()
            return
        batch = [self._points.popleft() for _ in range(min(_BATCH, len(self._points)))]
        await self._patiently(lambda: self._tracker.log(batch))
        if not self._closing.is_set():
            await self._pause(_PACE_SECONDS)

    async def _patiently(self, call: Callable[[], Awaitable[T]]) -> T:
        """Repeats a call for as long as the tracker is away."""
        self._failures = 0
        backoff = Backoff(shortest=0.5, longest=_LONGEST_PAUSE_SECONDS)
        while True:
            try:
                answer = await call()
            except Away as error:
                self._failures += 1
                if self._failures == _QUIET_TRIES + 1:
                    self._warn(f"is not responding; retrying: {error}")
            else:
                self._failures = 0
                return answer
            await self._pause(backoff.next())

    async def _pause(self, seconds: float) -> None:
        """Waits, but no longer than until the job ends."""
        if self._closing.is_set():
            await asyncio.sleep(min(seconds, _LAST_PAUSE_SECONDS))
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._closing.wait()

    def _warn(self, what: str) -> None:
        self._reporter.warn(f"{self._tracker.title} {what}.")
