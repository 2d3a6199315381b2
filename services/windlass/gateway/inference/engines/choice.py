"""Exchanges with engines: chosen by conversation and load, with retries."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Collection, Hashable, Mapping, Sequence
from http import HTTPStatus
from typing import NamedTuple

from windlass.api.inference.v1.inference_pb2 import ReplicaLoad
from windlass.core import telemetry
from windlass.gateway.inference.engines.aborting import abort
from windlass.gateway.inference.engines.connection import (
    EngineBroken,
    EngineConnection,
    EngineSilent,
)
from windlass.gateway.inference.engines.direct import DirectWays
from windlass.gateway.inference.engines.ejection import Ejections
from windlass.gateway.inference.engines.errors import NoAnswer, failed
from windlass.gateway.inference.engines.hedging import Opening, race
from windlass.gateway.inference.engines.lines import EnginePlace, Offers, WaitingRequests
from windlass.gateway.inference.engines.other_work import WEIGH_SECONDS, OtherWork
from windlass.gateway.inference.engines.places import Asker, Places
from windlass.gateway.inference.engines.pool import FARTHEST, EngineConnectionPool
from windlass.gateway.inference.engines.shares import EVEN, PriorityClasses
from windlass.gateway.inference.routes import EngineEndpoint
from windlass.inference_api.routes import ABORT
from windlass.metrics.gateway import HEDGED
from windlass.tunnel.lanes import Lanes

log = telemetry.logger("gateway.engines")
POOLS = 256
LET_GO_SECONDS = 1.0
# Open requests by which the engine of a conversation may be ahead of the least busy one.
BUSIER = 4
# Makes of two numbers of 56 bits one that says nothing of which of them is larger.
_PRIME = 1_000_000_007
# It has unloaded the model since the last news of it, or has too much to do.
_TRY_ANOTHER = frozenset({HTTPStatus.NOT_FOUND, HTTPStatus.SERVICE_UNAVAILABLE})
# Errors of engines that work: of what they do not offer, too.
_WORKS = _TRY_ANOTHER | {HTTPStatus.NOT_IMPLEMENTED}


class Sent(NamedTuple):
    """A request as it is sent to an engine."""

    path: str
    body: bytes
    request_id: str
    # Lines of its head, each with its end.
    lines: bytes = b""
    # Called when an engine gets it.
    asked: Callable[[], None] = lambda: None
    # Called when one that got it leaves it to others.
    refused: Callable[[], None] = lambda: None


class Engines:
    """Opens exchanges with engines."""

    def __init__(
        self,
        tunnels: Lanes | None = None,
        *,
        directly: DirectWays | None = None,
        weights: Mapping[str, int] = EVEN,
        priorities: Mapping[str, int] = EVEN,
        hedge_seconds: float = 0.0,
    ) -> None:
        """`weights` of organizations and projects whose requests wait, 1 for all others.

        `priorities` likewise, 0 for all others: the larger goes first.
        What no engine has begun to answer after `hedge_seconds` is sent to a second one that has
        a free place, and what begins first is the answer; 0: never.
        """
        self._hedge_seconds = hedge_seconds
        self._pools: dict[str, EngineConnectionPool] = {}
        self._tunnels = tunnels
        self._directly = directly
        self._ejections = Ejections(lambda address: self._pool(address).active)
        classes = PriorityClasses(priorities)
        self._places = Places(self.choose, self._ejections.able, weights, classes)

    def place(
        self, endpoints: Sequence[EngineEndpoint], asker: Asker, *, conversation: int = 0
    ) -> EnginePlace | None:
        """Takes a place for a request; None where every engine has as much to do as it can.

        Requests of one conversation go to one engine, unless it is busier than others by a
        margin; those of none, 0, to the engine that is least busy, and of several to the
        nearest. Who got a place gives it back by `done`.
        """
        pool = self.choose(endpoints, conversation)
        return self._places.take(asker, pool) if pool is not None else None

    def choose(
        self, endpoints: Sequence[EngineEndpoint], conversation: int = 0
    ) -> EngineConnectionPool | None:
        """Returns the engine that should get a request; None where none has a free place."""
        endpoints = self._ejections.able(endpoints)
        pool, endpoint = self._best(endpoints, conversation)
        if endpoint.has_room(pool.active):
            return pool
        free = [one for one in endpoints if one.has_room(self._pool(one.address).active)]
        return self._best(free, 0)[0] if free else None

    async def wait(
        self,
        asker: Asker,
        kind: Hashable,
        offers: Offers,
        *,
        seconds: float,
        tell: Callable[[], Awaitable[None]] | None = None,
    ) -> EnginePlace:
        """Waits in line for a place at one of the engines that are offered to its kind.

        Calls `tell` now and then. Raises HttpError 429 when too many wait, 503 when the time is
        up, and NoAnswer once no engine is offered.
        """
        return await self._places.wait(asker, kind, offers, seconds=seconds, tell=tell)

    async def open(
        self,
        place: EnginePlace,
        endpoints: Sequence[EngineEndpoint],
        sent: Sent,
        *,
        again: bool = True,
    ) -> EngineConnection:
        """Sends a request as `_open` does; what is slow to begin is sent to two engines at once.

        What runs in the background is not, nor what may have ended an engine.
        """
        if not self._hedge_seconds or place.background or not again:
            return await self._open(place, endpoints, sent, again=again)
        spare: list[EnginePlace] = []

        def second() -> Opening | None:
            others = [one for one in endpoints if one.address != place.pool.address]
            pool = self.choose(others) if others else None
            taken = self._places.second(place, pool) if pool is not None else None
            if taken is None:
                return None
            spare.append(taken)
            return self._open(taken, others, sent, again=False)

        try:
            first = self._open(place, endpoints, sent)
            connection, is_second = await race(first, second, seconds=self._hedge_seconds)
            if spare:
                HEDGED.labels("second" if is_second else "first").inc()
            if is_second:
                self._places.swap(place, spare[0])
            return connection
        except NoAnswer as error:
            # The copy may have ended its engine.
            raise NoAnswer(broke_off=error.broke_off or bool(spare)) from error
        finally:
            for one in spare:
                self._places.free(one)

    async def _open(
        self,
        place: EnginePlace,
        endpoints: Sequence[EngineEndpoint],
        sent: Sent,
        *,
        again: bool = True,
    ) -> EngineConnection:
        """Sends a request to the place's engine, or to another that takes it.

        Returns with its status and headers read; the place is at the engine that answers. An engine
        that breaks off may have ended because of the request, which is sent `again` once at most.
        Raises NoAnswer when no engine takes it, HttpError 502 when the last one broke off.
        """
        left = {one.address: one for one in endpoints}
        broke_off = not again
        for attempt in range(3):
            if not left:
                break
            if place.pool.address not in left:
                self._move(place, [*left.values()])
            address = place.pool.address
            place.pool.direct = left[address].direct
            try:
                connection = await place.pool.send(*sent[:5], fresh=broke_off)
            except EngineBroken as error:
                log.warning("engine_broke_off", engine=address, error=repr(error))
                self._ejections.erred(address, broke_off=True)
                if broke_off or isinstance(error, EngineSilent):
                    raise failed(error) from error
                # It may be about to end: it is tried again where there is no other, later.
                broke_off = True
                del left[address]
                continue
            except OSError as error:
                log.warning("engine_unreachable", engine=address, error=repr(error))
                self._ejections.failed(address)
                del left[address]
                if isinstance(error, TimeoutError):
                    break
                continue
            if not _failed(connection) and self._ejections.answered(address):
                self._places.rerouted()
            others = attempt < 2 and len(left) > 1
            if connection.status not in _TRY_ANOTHER or (
                connection.status == HTTPStatus.SERVICE_UNAVAILABLE and not others
            ):
                return connection
            del left[address]
            sent.refused()
            connection.close()
            place.pool.done(connection)
        raise NoAnswer(broke_off=broke_off)

    async def abort(
        self, place: EnginePlace, endpoints: Sequence[EngineEndpoint], sent: Sent
    ) -> None:
        """Has the engine of a place answer a request with what it has, if it can.

        Returns where it cannot or does not; waits for its cancellation otherwise.
        """
        if any(ABORT in one.routes for one in endpoints if one.address == place.pool.address):
            await abort(place.pool, sent.path, sent.request_id)

    def done(self, place: EnginePlace, connection: EngineConnection | None = None) -> None:
        """Takes back a place, and the connection to the engine if one was opened."""
        if connection is not None:
            if _failed(connection):
                self._ejections.erred(place.pool.address, broke_off=connection.broke_off)
            elif connection.whole:
                self._ejections.succeeded(place.pool.address)
            place.pool.done(connection)
        self._places.free(place)

    async def follow(self, changed: Callable[[], Awaitable[None]]) -> None:
        """Gives places at engines that come to those that wait, until cancelled."""
        while True:
            await changed()
            self._places.rerouted()

    async def let_go(self, routed: Callable[[], Collection[str]]) -> None:
        """Closes idle connections to engines that get no more requests, until cancelled.

        An agent that is about to stop waits for what is open.
        """
        while True:
            await asyncio.sleep(LET_GO_SECONDS)
            if idle := [pool for pool in self._pools.values() if pool.has_idle]:
                addresses = routed()
                for pool in idle:
                    if pool.address not in addresses:
                        pool.close()

    async def probe(self) -> None:
        """Looks after engines that did not answer, until cancelled."""
        await self._ejections.probe(
            lambda address: self._pool(address).reachable(), self._places.rerouted
        )

    async def weigh(self, loads: Callable[[], Mapping[str, ReplicaLoad]]) -> None:
        """Has what others do at the engines count in their choice, until cancelled."""
        other_work = OtherWork()
        while True:
            other_work.weigh(loads(), self._pools)
            await asyncio.sleep(WEIGH_SECONDS)

    @property
    def waiting(self) -> int:
        """The requests that wait for a place."""
        return self._places.waiting

    def lines(self) -> dict[str, WaitingRequests]:
        """The requests that wait for busy engines, by the version of these."""
        return self._places.lines()

    def _move(self, place: EnginePlace, endpoints: Sequence[EngineEndpoint]) -> None:
        """Moves a place to one of some engines, however busy."""
        self._places.move(place, self._best(self._ejections.able(endpoints), 0)[0])

    def _best(
        self, endpoints: Sequence[EngineEndpoint], conversation: int
    ) -> tuple[EngineConnectionPool, EngineEndpoint]:
        if not endpoints:
            raise AssertionError("a caller stops when every endpoint was tried")
        known = self._pools.get
        pools = [known(one.address) or self._pool(one.address) for one in endpoints]
        if len(pools) == 1:
            return pools[0], endpoints[0]
        # Whole lists at a time, since this is done for each request and replicas may be many.
        # By open requests, then by distance: a near engine gets at most one more than a far one.
        work = [pool.active * FARTHEST + pool.behind for pool in pools]
        least = min(work)
        if conversation:
            # Rendezvous: an engine that comes or goes moves its own conversations alone.
            weights = [(conversation ^ pool.seed) % _PRIME for pool in pools]
            kept = weights.index(max(weights))
            busier = work[kept] // FARTHEST - least // FARTHEST
            if busier <= (0 if pools[kept].full else BUSIER):
                return pools[kept], endpoints[kept]
        start = random.randrange(len(work))  # noqa: S311
        best = work.index(least, start) if least in work[start:] else work.index(least)
        return pools[best], endpoints[best]

    def _pool(self, address: str) -> EngineConnectionPool:
        found = self._pools.get(address)
        if found is None:
            found = self._pools[address] = EngineConnectionPool(
                address, self._tunnels, self._directly
            )
            self._drop_idle()
        return found

    def _drop_idle(self) -> None:
        """Engines come and go under new addresses: forgets the oldest that do nothing."""
        for address in list(self._pools)[: max(0, len(self._pools) - POOLS)]:
            if not self._pools[address].active:
                self._pools.pop(address).close()

    async def close(self) -> None:
        """Closes every connection."""
        for pool in self._pools.values():
            pool.close()


def _failed(connection: EngineConnection) -> bool:
    """Returns True if an engine has broken off, or says that it failed."""
    error = connection.status >= HTTPStatus.INTERNAL_SERVER_ERROR
    return connection.broke_off or (error and connection.status not in _WORKS)
