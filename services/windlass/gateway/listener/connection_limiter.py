"""Limits on open connections by address, and the choice of which to close."""

import asyncio
from collections import defaultdict
from collections.abc import Iterable
from enum import IntEnum
from typing import Protocol

from windlass.core.addresses import ClientAddresses, group
from windlass.gateway.listener.bounds import ListenerBounds
from windlass.metrics.gateway import CLOSED, CONNECTIONS

SWEEP_SECONDS = 1.0
# Connections that are looked at, and that are ended, without a pause: to end one means to answer
# it, and those that came together are late together.
SLICE = 500
ENDINGS, REST_SECONDS = 20, 0.002
# At a bound this part of what can go is closed at once, so that the search is rarely made.
PART = 16


class Use(IntEnum):
    """Activity of a connection; the lower, the sooner it may be closed."""

    HALF_OPEN = 0
    IDLE = 1
    BUSY = 2


class LimitedConnection(Protocol):
    """A connection as the limiter sees it."""

    peer: str

    @property
    def use(self) -> Use:
        """The present use of the connection."""

    def check(self, now: float) -> str:
        """Closes itself if a time limit has passed; returns the reason, or nothing."""

    def abort(self) -> None:
        """Closes at once."""


class ConnectionLimiter:
    """Admits connections within the bounds."""

    def __init__(self, bounds: ListenerBounds, addresses: ClientAddresses):
        self.bounds = bounds
        self._addresses = addresses
        # In the order of their coming.
        self._all: dict[LimitedConnection, str] = {}
        self._of: defaultdict[str, dict[LimitedConnection, None]] = defaultdict(dict)
        # Set while connections are open.
        self._has_any = asyncio.Event()

    @property
    def count(self) -> int:
        """Connections that are open."""
        return len(self._all)

    def admit(self, connection: LimitedConnection) -> bool:
        """Admits a connection; at a limit the oldest half-open or idle ones are closed."""
        proxy = self._addresses.trusts(connection.peer)
        address = "" if proxy else group(connection.peer)
        mine = self._of.get(address, {})
        full = not proxy and len(mine) >= self.bounds.per_address
        if full and not self._make_room(mine, "address_full"):
            return False
        if len(self._all) >= self.bounds.connections and not self._make_room(self._all, "full"):
            return False
        self._all[connection] = address
        self._of[address][connection] = None
        self._has_any.set()
        CONNECTIONS.set(len(self._all))
        return True

    def release(self, connection: LimitedConnection) -> None:
        """Removes a connection; an unknown one is ignored."""
        address = self._all.pop(connection, None)
        if address is None:
            return
        mine = self._of[address]
        mine.pop(connection, None)
        if not mine:
            del self._of[address]
        if not self._all:
            self._has_any.clear()
        CONNECTIONS.set(len(self._all))

    async def sweep(self) -> None:
        """Closes connections that exceed time limits, until cancelled."""
        while True:
            await self._has_any.wait()
            await asyncio.sleep(SWEEP_SECONDS)
            await self.look()

    async def look(self) -> None:
        """Checks every connection once, yielding to the event loop in between."""
        loop = asyncio.get_running_loop()
        ended = 0
        for number, connection in enumerate(list(self._all), 1):
            if reason := connection.check(loop.time()):
                CLOSED.labels(reason).inc()
                ended += 1
                if ended % ENDINGS == 0:
                    await asyncio.sleep(REST_SECONDS)
            if number % SLICE == 0:
                await asyncio.sleep(0)

    def _make_room(self, among: Iterable[LimitedConnection], reason: str) -> bool:
        found: dict[Use, list[LimitedConnection]] = {use: [] for use in Use}
        for connection in among:
            found[connection.use].append(connection)
        leaving = found[Use.HALF_OPEN] or found[Use.IDLE]
        for connection in leaving[: len(leaving) // PART + 1]:
            self.release(connection)
            connection.abort()
            CLOSED.labels(reason).inc()
        if not leaving:
            CLOSED.labels("refused").inc()
        return bool(leaving)
