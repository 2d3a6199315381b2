"""Ejection of engines that do not answer: left out of the choice, probed, and let back slowly."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from windlass.core import telemetry
from windlass.core.backoff import doubled
from windlass.gateway.inference.routes import EngineEndpoint
from windlass.metrics.gateway import EJECTED

log = telemetry.logger("gateway.engines")
# Pauses between probes, which double.
FIRST_SECONDS, LONGEST_SECONDS = 1.0, 30.0
# An engine that is away for so long has another address by now, or is gone.
FORGOTTEN_SECONDS = 600.0
# Once so many answers in a row were open there at once, it is like the others.
FULL = 32
# How often the time of the next probe is looked at.
_LOOK_SECONDS = 0.25


class Ejected:
    """An engine that did not answer; times are seconds of the event loop's clock."""

    __slots__ = ("failures", "probe_at", "room", "since")

    def __init__(self, now: float):
        self.since = now
        self.failures = 0
        self.probe_at = now
        # Requests that it may have at once: none while it is away, then twice as many with
        # each answer.
        self.room = 0


class Ejections:
    """The engines that this gateway leaves out, by address."""

    def __init__(self, active: Callable[[str], int]):
        """`active` tells how many requests an engine has open."""
        self._active = active
        self._ejected: dict[str, Ejected] = {}
        self._any = asyncio.Event()

    def able(self, endpoints: Sequence[EngineEndpoint]) -> Sequence[EngineEndpoint]:
        """Returns the engines that may get a request; all of them where none may."""
        if not self._ejected:
            return endpoints
        return [one for one in endpoints if self._admits(one.address)] or endpoints

    def failed(self, address: str) -> None:
        """Leaves an engine out that could not be reached, or broke off before its answer."""
        now = asyncio.get_running_loop().time()
        found = self._ejected.get(address)
        if found is None:
            found = self._ejected[address] = Ejected(now)
        elif not found.room:
            # Requests that were sent before say nothing new.
            return
        self._eject(address, found, now)

    def answered(self, address: str) -> None:
        """Notes an answer: more requests may come to an engine that is being let back."""
        found = self._ejected.get(address)
        if found is None:
            return
        found.room = max(1, found.room * 2)
        if found.room >= FULL:
            self._forget(address)

    async def probe(
        self, reaches: Callable[[str], Awaitable[bool]], back: Callable[[], None]
    ) -> None:
        """Asks for ejected engines until cancelled, and calls `back` when some are reached."""
        while True:
            await self._any.wait()
            now = asyncio.get_running_loop().time()
            due = [
                address
                for address, one in self._ejected.items()
                if not one.room and one.probe_at <= now
            ]
            reached = await asyncio.gather(*(reaches(address) for address in due))
            for address, is_there in zip(due, reached, strict=True):
                self._probed(address, is_there=is_there)
            if any(reached):
                back()
            await asyncio.sleep(_LOOK_SECONDS)

    def _admits(self, address: str) -> bool:
        found = self._ejected.get(address)
        return found is None or self._active(address) < found.room

    def _probed(self, address: str, *, is_there: bool) -> None:
        found, now = self._ejected.get(address), asyncio.get_running_loop().time()
        if found is None or found.room:
            return
        if is_there:
            found.room = 1
            log.info("engine_reached_again", engine=address)
        elif now - found.since > FORGOTTEN_SECONDS:
            self._forget(address)
        else:
            self._eject(address, found, now)

    def _eject(self, address: str, found: Ejected, now: float) -> None:
        pause = doubled(FIRST_SECONDS, found.failures, longest=LONGEST_SECONDS)
        found.failures += 1
        found.probe_at = now + pause
        if found.room or found.failures == 1:
            log.warning("engine_ejected", engine=address, probe_in_seconds=pause)
        found.room = 0
        self._any.set()
        EJECTED.set(len(self._ejected))

    def _forget(self, address: str) -> None:
        del self._ejected[address]
        EJECTED.set(len(self._ejected))
        if not self._ejected:
            self._any.clear()
