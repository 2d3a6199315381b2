"""Lines of requests that wait for busy engines, fair between projects."""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Iterator

from windlass.gateway.inference.engines.pool import EngineConnectionPool
from windlass.gateway.inference.routes import EngineEndpoint

# Behind so long a wait, what runs in the background waits for others no more.
AGED_SECONDS = 30.0
# How much the newest interval between two freed places counts in their mean.
_NEWEST = 0.2
# Of an interval before any was seen.
_ASSUMED_SECONDS = 1.0
Offers = Callable[[], tuple[EngineEndpoint, ...]]


class EnginePlace:
    """A request that one of the engines answers, or is about to."""

    __slots__ = ("line", "pool", "project_id")

    def __init__(self, line: "Line", project_id: str, pool: EngineConnectionPool):
        self.line = line
        self.project_id = project_id
        self.pool = pool


class Waiter:
    """A request that waits for a place at one of the engines that are offered to it."""

    __slots__ = ("background", "offers", "place", "project_id", "since")

    def __init__(self, project_id: str, offers: Offers, *, background: bool, since: float):
        self.project_id = project_id
        # The engines that may get it at this moment.
        self.offers = offers
        self.background = background
        self.since = since
        self.place: asyncio.Future[EnginePlace] = asyncio.get_running_loop().create_future()


class Line:
    """The requests for the engines of one version: how many are open, and those that wait.

    The next place goes to the project with the fewest open requests; among its own, and among
    projects with as many, to the one that has waited longest. What runs in the background comes
    last, unless it has waited for long. Times are seconds of one clock.
    """

    def __init__(self, version_id: str) -> None:
        self.version_id = version_id
        self.open = Counter[str]()
        # By project and background, in the order of arrival.
        self._waiting: dict[tuple[str, bool], deque[Waiter]] = {}
        self._interval = _ASSUMED_SECONDS
        self._freed_at = 0.0

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def __iter__(self) -> Iterator[Waiter]:
        return (waiter for queue in self._waiting.values() for waiter in queue)

    def join(self, waiter: Waiter) -> None:
        """Adds a request behind its project's others."""
        key = (waiter.project_id, waiter.background)
        self._waiting.setdefault(key, deque()).append(waiter)

    def leave(self, waiter: Waiter) -> None:
        """Removes a request, if it still waits."""
        key = (waiter.project_id, waiter.background)
        queue = self._waiting.get(key, deque())
        if waiter in queue:
            queue.remove(waiter)
        if not queue:
            self._waiting.pop(key, None)

    def first(self, now: float, fits: Callable[[Waiter], bool]) -> Waiter | None:
        """Returns the request whose turn it is, of those that fit."""
        found = [
            waiter
            for queue in self._waiting.values()
            if (waiter := next(filter(fits, queue), None)) is not None
        ]
        return min(found, key=lambda waiter: self._turn(now, waiter), default=None)

    def waiting_of(self, project_id: str) -> int:
        """The number of a project's requests that wait."""
        return sum(len(self._waiting.get((project_id, each), ())) for each in (False, True))

    def newest_of(self, project_id: str) -> Waiter:
        """The request of a project that came last; the project has one."""
        keys = ((project_id, background) for background in (True, False))
        return next(self._waiting[key][-1] for key in keys if key in self._waiting)

    def freed(self, now: float) -> None:
        """Notes that a place became free."""
        if self._freed_at:
            self._interval += _NEWEST * (now - self._freed_at - self._interval)
        self._freed_at = now

    @property
    def seconds(self) -> float:
        """Seconds until the last of those that wait has a place, as fast as places became free."""
        return len(self) * self._interval

    def _turn(self, now: float, waiter: Waiter) -> tuple[bool, int, float]:
        later = waiter.background and now - waiter.since < AGED_SECONDS
        return later, self.open[waiter.project_id], waiter.since
