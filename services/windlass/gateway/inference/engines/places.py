"""Places of requests at engines, no more than an engine answers at once; others wait in lines."""

import asyncio
import math
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from typing import NamedTuple

from windlass.gateway.errors import HttpError
from windlass.gateway.inference.engines.errors import NoAnswer
from windlass.gateway.inference.engines.lines import (
    EnginePlace,
    Line,
    Offers,
    Waiter,
    WaitingRequests,
)
from windlass.gateway.inference.engines.pool import EngineConnectionPool
from windlass.gateway.inference.engines.shares import PriorityClasses, Tenant, TenantShares
from windlass.gateway.inference.routes import EngineEndpoint
from windlass.metrics.gateway import WAIT_SECONDS, WAITING

# Requests that wait at once, of all models; each holds its body in memory.
WAITERS = 1000
# How often those that wait are told so; the first time comes this soon.
TELL_SECONDS = 1.0
# Of what a client is told to wait before it tries again.
_LONGEST_SECONDS = 120
Able = Callable[[Sequence[EngineEndpoint]], Sequence[EngineEndpoint]]
Pick = Callable[[Sequence[EngineEndpoint]], EngineConnectionPool | None]


class Asker(NamedTuple):
    """The tenant of a request, and the version whose engines it is for."""

    version_id: str
    tenant: Tenant
    # It is not a person's or a program's that waits for the answer itself, such as a grader's.
    background: bool = False


class Places:
    """Gives places at engines, and takes them back.

    A free place that somebody waits for goes to the next in its line at once, so that nothing
    that comes later takes it.
    """

    def __init__(
        self, pick: Pick, able: Able, weights: Mapping[str, int], classes: PriorityClasses
    ):
        """`pick` chooses an engine that has a free place, if there is one.

        `able` leaves out engines that should get no request now. `weights` are those of
        `TenantShares`.
        """
        self._classes = classes
        self._weights = weights
        self._pick = pick
        self._able = able
        self._lines: dict[str, Line] = {}
        self._waiting = TenantShares(weights)

    def take(self, asker: Asker, pool: EngineConnectionPool) -> EnginePlace | None:
        """Takes a free place at an engine; None where somebody waits for it."""
        line = self._line(asker.version_id)
        if self._waiting and self._first(line, pool) is not None:
            return None
        return _placed(line, asker.tenant, pool, background=asker.background)

    def free(self, place: EnginePlace) -> None:
        """Gives a place back, to the next in its line if anybody waits."""
        line = place.line
        place.pool.active -= 1
        line.open.add(place.tenant, -1)
        self._fill_lines(line, place.pool)
        self._forget_empty(line)

    def move(self, place: EnginePlace, pool: EngineConnectionPool) -> None:
        """Moves a place to another engine, whether or not one is free there."""
        before, place.pool = place.pool, pool
        before.active -= 1
        pool.active += 1
        self._fill_lines(place.line, before)

    def second(self, place: EnginePlace, pool: EngineConnectionPool) -> EnginePlace | None:
        """Takes a free place for a request that has one; None where somebody waits for it."""
        line = place.line
        return self.take(Asker(line.version_id, place.tenant, place.background), pool)

    def swap(self, one: EnginePlace, other: EnginePlace) -> None:
        """Gives each of two places the other's engine."""
        one.pool, other.pool = other.pool, one.pool

    async def wait(
        self,
        asker: Asker,
        kind: Hashable,
        offers: Offers,
        *,
        seconds: float,
        tell: Callable[[], Awaitable[None]] | None = None,
    ) -> EnginePlace:
        """Waits for a place at one of the engines that are offered to its kind.

        Calls `tell` every `TELL_SECONDS`. Raises HttpError 429 when too many wait, 503 when the
        time is up, and NoAnswer once no engine is offered.
        """
        deadline = _now() + seconds
        waiter = self._join(asker, kind, offers)
        try:
            while not waiter.decided.done():
                left = deadline - _now()
                if left <= 0:
                    raise _busy(waiter)
                # The task may be cancelled at any moment, and the future is not cancelled with it.
                await asyncio.wait({waiter.decided}, timeout=min(left, TELL_SECONDS))
                if tell is not None and not waiter.decided.done():
                    await tell()
            return waiter.take()
        finally:
            self._leave(waiter)

    def rerouted(self) -> None:
        """Looks again at what is offered, since engines have come or gone."""
        for line in tuple(self._lines.values()):
            gone = {kind for kind, offers in line.offers if not offers()}
            for waiter in [one for one in line if one.kind in gone]:
                self._end(waiter, NoAnswer())
            self._serve(line)

    @property
    def waiting(self) -> int:
        """The requests that wait."""
        return self._waiting.total

    def lines(self) -> dict[str, WaitingRequests]:
        """The lines in which requests wait, by version."""
        now = _now()
        return {name: line.waiting(now) for name, line in self._lines.items() if len(line)}

    def _join(self, asker: Asker, kind: Hashable, offers: Offers) -> Waiter:
        self._make_room(asker)
        line = self._line(asker.version_id)
        waiter = Waiter(
            line,
            asker.tenant,
            kind,
            background=asker.background,
            since=_now(),
            later=self._classes.of(asker.tenant),
        )
        line.join(waiter, offers)
        self._count(asker.tenant, 1)
        self._serve(line)
        return waiter

    def _leave(self, waiter: Waiter) -> None:
        """Ends a wait, and gives back a place that was not taken."""
        line = waiter.line
        if line.leave(waiter):
            self._count(waiter.tenant, -1)
        if waiter.place is not None:
            self.free(waiter.take())
        WAIT_SECONDS.observe(_now() - waiter.since)
        self._forget_empty(line)

    def _serve(self, line: Line) -> None:
        """Gives every free place that somebody in the line waits for."""
        while len(line):
            pools = {kind: self._pick(found) for kind, offers in line.offers if (found := offers())}
            waiter = line.first(_now(), {kind for kind, pool in pools.items() if pool})
            if waiter is None or (pool := pools[waiter.kind]) is None:
                return
            self._give(waiter, pool)

    def _fill_lines(self, line: Line, pool: EngineConnectionPool) -> None:
        """Gives the free places of an engine to the next in a line, then to those in others.

        An engine is in two lines for a while where an adapter's merged copy takes over.
        """
        self._fill(line, pool)
        if self._waiting:
            for other in tuple(self._lines.values()):
                if other is not line:
                    self._fill(other, pool)

    def _fill(self, line: Line, pool: EngineConnectionPool) -> None:
        """Gives the free places of an engine to the next in line."""
        if not len(line):
            return
        line.freed(_now())
        while waiter := self._first(line, pool):
            self._give(waiter, pool)

    def _first(self, line: Line, pool: EngineConnectionPool) -> Waiter | None:
        """The request whose turn it is at an engine; None where it has no free place for any."""
        kinds = {
            kind
            for kind, offers in line.offers
            if any(
                one.address == pool.address and one.has_room(pool.active)
                for one in self._able(offers())
            )
        }
        return line.first(_now(), kinds)

    def _give(self, waiter: Waiter, pool: EngineConnectionPool) -> None:
        waiter.line.leave(waiter)
        self._count(waiter.tenant, -1)
        may_wait = waiter.may_wait(_now())
        waiter.give(_placed(waiter.line, waiter.tenant, pool, background=may_wait))

    def _end(self, waiter: Waiter, error: HttpError) -> None:
        waiter.line.leave(waiter)
        self._count(waiter.tenant, -1)
        waiter.refuse(error)

    def _make_room(self, asker: Asker) -> None:
        """Ends the newest wait of the tenant with the most for its weight, where too many wait.

        What runs in the background goes first. Raises HttpError 429 if that is the tenant of the
        request itself, unless others of its own may wait and this one may not.
        """
        if self.waiting < WAITERS:
            return
        share = self._waiting.of
        most = max(map(share, self._waiting))
        is_own = share(asker.tenant) >= most
        greediest = [one for one in self._waiting if share(one) == most]
        lasts = [
            waiter
            for line in self._lines.values()
            for tenant in ([asker.tenant] if is_own else greediest)
            if (waiter := line.last_of(tenant)) is not None
        ]
        last = max(lasts, key=lambda one: (one.background, one.since))
        if is_own and (asker.background or not last.background):
            waiting = self._waiting.number(asker.tenant)
            raise _too_many(self._lines.get(asker.version_id), waiting)
        self._end(last, _too_many(last.line, self._waiting.number(last.tenant)))

    def _count(self, tenant: Tenant, number: int) -> None:
        self._waiting.add(tenant, number)
        WAITING.set(self.waiting)

    def _line(self, version_id: str) -> Line:
        line = self._lines.get(version_id)
        if line is None:
            line = self._lines[version_id] = Line(version_id, self._weights)
        return line

    def _forget_empty(self, line: Line) -> None:
        if not line.open and not len(line) and self._lines.get(line.version_id) is line:
            del self._lines[line.version_id]


def _placed(
    line: Line, tenant: Tenant, pool: EngineConnectionPool, *, background: bool
) -> EnginePlace:
    line.open.add(tenant, 1)
    pool.active += 1
    return EnginePlace(line, tenant, pool, background=background)


def _now() -> float:
    return asyncio.get_running_loop().time()


def _busy(waiter: Waiter) -> HttpError:
    return HttpError(
        503,
        f"The model's engines are busy: the request has waited for "
        f"{_now() - waiter.since:.0f} seconds; try again later.",
        kind="service_unavailable_error",
        code="engines_busy",
        headers={"retry-after": _retry_after(waiter.line)},
    )


def _too_many(line: Line | None, waiting: int) -> HttpError:
    return HttpError(
        429,
        f"The model's engines are busy, and {waiting} requests of this project wait already; "
        "try again later.",
        kind="rate_limit_error",
        code="engines_busy",
        headers={"retry-after": _retry_after(line)},
    )


def _retry_after(line: Line | None) -> str:
    seconds = line.seconds if line is not None else 1.0
    return str(min(max(1, math.ceil(seconds)), _LONGEST_SECONDS))
