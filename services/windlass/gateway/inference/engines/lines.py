"""Lines of requests that wait for busy engines, fair between tenants."""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from typing import NamedTuple

from windlass.gateway.errors import HttpError
from windlass.gateway.inference.engines.pool import EngineConnectionPool
from windlass.gateway.inference.engines.shares import EVEN, Share, Tenant, TenantShares
from windlass.gateway.inference.routes import EngineEndpoint

# Behind so long a wait, what runs in the background waits for others no more, nor does what is of
# a later class.
AGED_SECONDS = 30.0
# How much the newest interval between two freed places counts in their mean.
_NEWEST = 0.2
# Of an interval before any was seen.
_ASSUMED_SECONDS = 1.0
# The engines that may get requests of one kind at this moment.
Offers = Callable[[], tuple[EngineEndpoint, ...]]


class EnginePlace:
    """A request that one of the engines answers, or is about to."""

    __slots__ = ("background", "line", "pool", "tenant")

    def __init__(
        self, line: "Line", tenant: Tenant, pool: EngineConnectionPool, *, background: bool
    ):
        self.line = line
        self.tenant = tenant
        self.pool = pool
        # Others go before it at the engine too.
        self.background = background


class Waiter:
    """A request that waits in a line until it gets a place, or an error."""

    __slots__ = (
        "background", "decided", "error", "kind", "later", "line", "place", "since", "tenant",
    )  # fmt: skip

    def __init__(
        self,
        line: "Line",
        tenant: Tenant,
        kind: Hashable,
        *,
        background: bool,
        since: float,
        later: int = 0,
    ):
        """`later` is the number of classes that come before its own."""
        self.later = later
        self.line = line
        self.tenant = tenant
        # What is offered to it is offered to all of its kind.
        self.kind = kind
        self.background = background
        self.since = since
        # Waited for by `asyncio.wait`, which never cancels it: who waits may leave, and what it
        # got in that moment is given back by `Places`.
        self.decided: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.place: EnginePlace | None = None
        self.error: HttpError | None = None

    def may_wait(self, now: float) -> bool:
        """Returns True if others go before it still."""
        return self.background and not self._is_aged(now)

    def classes_before(self, now: float) -> int:
        """Returns how many classes of requests go before it still."""
        return 0 if self._is_aged(now) else self.later

    def _is_aged(self, now: float) -> bool:
        return now - self.since >= AGED_SECONDS

    def give(self, place: EnginePlace) -> None:
        """Ends the wait with a place."""
        self.place = place
        self.decided.set_result(None)

    def refuse(self, error: HttpError) -> None:
        """Ends the wait with an error."""
        self.error = error
        self.decided.set_result(None)

    def take(self) -> EnginePlace:
        """Returns the place, which is the caller's to give back; raises the error."""
        place, self.place = self.place, None
        if self.error is not None:
            raise self.error
        if place is None:
            raise AssertionError("who waits takes once it was decided")
        return place


class WaitingRequests(NamedTuple):
    """A number of requests in line, how long the first has waited, and others behind them."""

    requests: int
    # Of the event loop's clock.
    seconds: float
    # Those that let others go first.
    background: int


class Line:
    """The requests for the engines of one version: how many are open, and those that wait.

    The next place goes to the first class, and of that to the organization with the fewest open
    requests for its weight, the new one counted, and to its project with the fewest; among its own,
    and among projects with as many, to the one that has waited longest. What runs in the background
    comes last. What has waited for long is of the first class. Times are seconds of one clock.
    """

    def __init__(self, version_id: str, weights: Mapping[str, int] = EVEN) -> None:
        """`weights` are those of `TenantShares`."""
        self.version_id = version_id
        self.open = TenantShares(weights)
        # By background, in the order of arrival.
        self._waiting: dict[tuple[Tenant, bool], deque[Waiter]] = {}
        self._kinds = Counter[Hashable]()
        self._offers: dict[Hashable, Offers] = {}
        self._interval = _ASSUMED_SECONDS
        self._freed_at = 0.0

    def __len__(self) -> int:
        return self._kinds.total()

    def __iter__(self) -> Iterator[Waiter]:
        return (waiter for queue in self._waiting.values() for waiter in queue)

    @property
    def offers(self) -> list[tuple[Hashable, Offers]]:
        """The offers to each kind of those that wait."""
        return list(self._offers.items())

    def join(self, waiter: Waiter, offers: Offers) -> None:
        """Adds a request behind its project's others."""
        key = (waiter.tenant, waiter.background)
        self._waiting.setdefault(key, deque()).append(waiter)
        self._kinds[waiter.kind] += 1
        self._offers[waiter.kind] = offers

    def leave(self, waiter: Waiter) -> bool:
        """Removes a request; returns False if it waits no more."""
        key = (waiter.tenant, waiter.background)
        queue = self._waiting.get(key)
        if queue is None or waiter not in queue:
            return False
        queue.remove(waiter)
        if not queue:
            del self._waiting[key]
        self._kinds[waiter.kind] -= 1
        if not self._kinds[waiter.kind]:
            del self._kinds[waiter.kind], self._offers[waiter.kind]
        if not self._kinds:
            # The time until the next one waits says nothing of how fast places become free.
            self._freed_at = 0.0
        return True

    def first(self, now: float, kinds: Collection[Hashable]) -> Waiter | None:
        """Returns the request whose turn it is, of those of some kinds."""
        if not kinds:
            return None
        every = self._kinds.keys() <= set(kinds)
        found = [
            waiter
            for queue in self._waiting.values()
            if (waiter := queue[0] if every else _first_of(queue, kinds)) is not None
        ]
        return min(found, key=lambda waiter: self._turn(now, waiter), default=None)

    def waiting(self, now: float) -> WaitingRequests:
        """Returns how many wait, and for how long."""
        queues = [queue for (_, background), queue in self._waiting.items() if not background]
        number = sum(map(len, queues))
        since = min((queue[0].since for queue in queues), default=now)
        return WaitingRequests(number, now - since, len(self) - number)

    def last_of(self, tenant: Tenant) -> Waiter | None:
        """The request of a tenant that came last, of those in the background if it has any."""
        queue = self._waiting.get((tenant, True)) or self._waiting.get((tenant, False))
        return queue[-1] if queue else None

    def freed(self, now: float) -> None:
        """Notes that a place became free."""
        if self._freed_at:
            self._interval += _NEWEST * (now - self._freed_at - self._interval)
        self._freed_at = now

    @property
    def seconds(self) -> float:
        """Seconds until the last of those that wait has a place, as fast as places became free."""
        return len(self) * self._interval

    def _turn(self, now: float, waiter: Waiter) -> tuple[bool, int, Share, float]:
        share = self.open.of(waiter.tenant, more=1)
        return waiter.may_wait(now), waiter.classes_before(now), share, waiter.since


def _first_of(queue: deque[Waiter], kinds: Collection[Hashable]) -> Waiter | None:
    return next((waiter for waiter in queue if waiter.kind in kinds), None)
