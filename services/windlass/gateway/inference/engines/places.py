"""Places of requests at engines, no more than an engine answers at once; others wait in lines."""

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from windlass.gateway.errors import HttpError
from windlass.gateway.inference.engines.lines import EnginePlace, Line, Offers, Waiter
from windlass.gateway.inference.engines.pool import EngineConnectionPool
from windlass.gateway.inference.routes import EngineEndpoint
from windlass.metrics.gateway import WAIT_SECONDS, WAITING

# Requests that wait at once, of all models; each holds its body in memory.
WAITERS = 1000
# Of what a client is told to wait before it tries again.
_LONGEST_SECONDS = 120


class NoAnswer(HttpError):
    """No engine of a model accepted the request; a retry may succeed."""

    def __init__(self) -> None:
        super().__init__(
            503,
            "No engine of this model is responding; try again.",
            kind="service_unavailable_error",
            code="model_not_ready",
            param="model",
            headers={"retry-after": "1"},
        )


class Asker(NamedTuple):
    """The project that a request is of, and the version whose engines it is for."""

    version_id: str
    project_id: str
    # It is not a person's or a program's that waits for the answer itself, such as a grader's.
    background: bool = False


Able = Callable[[Sequence[EngineEndpoint]], Sequence[EngineEndpoint]]
Pick = Callable[[Sequence[EngineEndpoint]], EngineConnectionPool | None]


class Places:
    """Gives places at engines, and takes them back.

    A free place that somebody waits for goes to the next in its line at once, so that what comes
    later never takes it.
    """

    def __init__(self, pick: Pick, able: Able):
        """`pick` chooses an engine that has a free place, if there is one.

        `able` leaves out engines that should get no request now.
        """
        self._pick = pick
        self._able = able
        self._lines: dict[str, Line] = {}
        self._waiters = 0

    def take(self, asker: Asker, pool: EngineConnectionPool) -> EnginePlace:
        """Takes a place at an engine, whether or not one is free."""
        line = self._lines.get(asker.version_id)
        if line is None:
            line = self._lines[asker.version_id] = Line(asker.version_id)
        line.open[asker.project_id] += 1
        pool.active += 1
        return EnginePlace(line, asker.project_id, pool)

    def free(self, place: EnginePlace) -> None:
        """Gives a place back, to the next in its line if anybody waits."""
        line, pool = place.line, place.pool
        pool.active -= 1
        line.open[place.project_id] -= 1
        if not line.open[place.project_id]:
            del line.open[place.project_id]
        self._fill(line, pool)
        self._forget_empty(line)

    def move(self, place: EnginePlace, pool: EngineConnectionPool) -> None:
        """Moves a place to another engine, whether or not one is free there."""
        before, place.pool = place.pool, pool
        before.active -= 1
        pool.active += 1
        self._fill(place.line, before)

    async def wait(self, asker: Asker, offers: Offers, seconds: float) -> EnginePlace:
        """Waits for a free place at one of the engines that are offered, while there are any.

        Raises NoAnswer once none is offered, and HttpError 429 or 503 when too many wait or the
        time is up.
        """
        line = self._lines.setdefault(asker.version_id, Line(asker.version_id))
        self._make_room(line, asker.project_id)
        now = asyncio.get_running_loop().time()
        waiter = Waiter(asker.project_id, offers, background=asker.background, since=now)
        line.join(waiter)
        self._waiters += 1
        WAITING.inc()
        try:
            async with asyncio.timeout(seconds):
                return await waiter.place
        except TimeoutError:
            self._give_back(waiter)
            raise _busy(line, seconds) from None
        except asyncio.CancelledError:
            self._give_back(waiter)
            raise
        finally:
            self._waiters -= 1
            WAITING.dec()
            WAIT_SECONDS.observe(asyncio.get_running_loop().time() - now)
            line.leave(waiter)
            self._forget_empty(line)

    def rerouted(self) -> None:
        """Looks again at what is offered, since engines have come or gone."""
        for line in tuple(self._lines.values()):
            for waiter in tuple(line):
                if not waiter.offers():
                    line.leave(waiter)
                    _refuse(waiter, NoAnswer())
            now = asyncio.get_running_loop().time()
            while following := line.first(now, lambda one: self._pick(one.offers()) is not None):
                if pool := self._pick(following.offers()):
                    self._give(line, following, pool)

    @property
    def waiting(self) -> int:
        """The requests that wait."""
        return self._waiters

    def _fill(self, line: Line, pool: EngineConnectionPool) -> None:
        """Gives the place that became free at an engine to the next in line."""
        if self._waiters and len(line):
            now = asyncio.get_running_loop().time()
            line.freed(now)
            if waiter := line.first(now, lambda one: self._may_have(one, pool)):
                self._give(line, waiter, pool)

    def _may_have(self, waiter: Waiter, pool: EngineConnectionPool) -> bool:
        """Returns True if an engine has room for a request, and is offered to it."""
        return any(
            one.address == pool.address and one.has_room(pool.active)
            for one in self._able(waiter.offers())
        )

    def _give(self, line: Line, waiter: Waiter, pool: EngineConnectionPool) -> None:
        line.leave(waiter)
        if not waiter.place.done():
            asker = Asker(line.version_id, waiter.project_id)
            waiter.place.set_result(self.take(asker, pool))

    def _give_back(self, waiter: Waiter) -> None:
        """Frees the place of a request that got it and left in the same moment."""
        place = waiter.place
        if place.done() and not place.cancelled() and place.exception() is None:
            self.free(place.result())

    def _make_room(self, line: Line, project_id: str) -> None:
        """Ends the newest wait of the project with the most, where too many wait.

        Raises HttpError 429 if that is the project of the request itself.
        """
        if self._waiters < WAITERS:
            return
        waits = Counter[tuple[str, str]]()
        for one in self._lines.values():
            waits.update((waiter.project_id, one.version_id) for waiter in one)
        projects = Counter[str]()
        for (project, _), number in waits.items():
            projects[project] += number
        if not projects:
            return
        greediest = max(projects, key=projects.__getitem__)
        if projects[project_id] >= projects[greediest]:
            raise _too_many(line, projects[project_id])
        version = max((key for key in waits if key[0] == greediest), key=waits.__getitem__)[1]
        crowded = self._lines[version]
        last = crowded.newest_of(greediest)
        crowded.leave(last)
        _refuse(last, _too_many(crowded, projects[greediest]))

    def _forget_empty(self, line: Line) -> None:
        if not line.open and not len(line):
            self._lines.pop(line.version_id, None)


def _refuse(waiter: Waiter, error: HttpError) -> None:
    if not waiter.place.done():
        waiter.place.set_exception(error)


def _too_many(line: Line, waiting: int) -> HttpError:
    return HttpError(
        429,
        f"The model's engines are busy, and {waiting} requests of this project wait already; "
        "try again later.",
        kind="rate_limit_error",
        code="engines_busy",
        headers={"retry-after": _retry_after(line)},
    )


def _busy(line: Line, seconds: float) -> HttpError:
    return HttpError(
        503,
        f"The model's engines are busy: the request has waited for {seconds:.0f} seconds; "
        "try again later.",
        kind="service_unavailable_error",
        code="engines_busy",
        headers={"retry-after": _retry_after(line)},
    )


def _retry_after(line: Line) -> str:
    return str(min(max(1, math.ceil(line.seconds)), _LONGEST_SECONDS))
