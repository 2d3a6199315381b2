"""Ejection of engines that cannot be reached or fail: left out, probed, and let back slowly.

Requests may be at fault too, so that an engine is left out for several failures in a row: one that
answers nobody would otherwise be the least busy, and be sent the most. An answer to anybody ends
the row, also after the engine was let back, so that one tenant's requests keep it from nobody.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from windlass.core import telemetry
from windlass.gateway.inference.routes import EngineEndpoint
from windlass.metrics.gateway import EJECTED

log = telemetry.logger("gateway.engines")
# Pauses between probes, which double.
FIRST_SECONDS, LONGEST_SECONDS = 1.0, 30.0
# An engine that is away for so long has another address by now, or is gone.
FORGOTTEN_SECONDS = 600.0
# An engine that is back is like the others after so many answers, each of which lets twice as
# many requests come, or after a while.
FULL = 32
BACK_SECONDS = 60.0
# Failures in a row, as Envoy has it by default.
FAILURES = 5
# Engines whose failures are counted; the oldest are forgotten.
_COUNTED = 1024


class Ejected:
    """An engine that could not be reached, or failed."""

    __slots__ = ("failed", "room", "since")

    def __init__(self, since: float):
        # Seconds of the event loop's clock.
        self.since = since
        # Requests that it may have at once: none while it is away.
        self.room = 0
        # Set by a failure after it was back.
        self.failed = asyncio.Event()


class Ejections:
    """The engines that this gateway leaves out, by address."""

    def __init__(self, active: Callable[[str], int]):
        """`active` tells how many requests an engine has open."""
        self._active = active
        self._ejected: dict[str, Ejected] = {}
        self._failures: dict[str, int] = {}
        self._new: asyncio.Queue[str] = asyncio.Queue()

    def able(self, endpoints: Sequence[EngineEndpoint]) -> Sequence[EngineEndpoint]:
        """Returns the engines that may get a request; all of them where none may."""
        if not self._ejected:
            return endpoints
        return [one for one in endpoints if self._admits(one.address)] or endpoints

    def failed(self, address: str) -> None:
        """Leaves an engine out that could not be reached."""
        self._failures.pop(address, None)
        found = self._ejected.get(address)
        if found is None:
            self._ejected[address] = Ejected(asyncio.get_running_loop().time())
            self._new.put_nowait(address)
            EJECTED.set(len(self._ejected))
            log.warning("engine_ejected", engine=address)
        elif found.room:
            found.room = 0
            found.failed.set()

    def erred(self, address: str, *, broke_off: bool = False) -> None:
        """Notes an answer that failed; leaves the engine out after FAILURES without another.

        One that has just been let back is left out at once where it `broke_off`.
        """
        count = self._failures.pop(address, 0) + 1
        if count >= FAILURES or (broke_off and address in self._ejected):
            self.failed(address)
            return
        self._failures[address] = count
        if len(self._failures) > _COUNTED:
            del self._failures[next(iter(self._failures))]

    def succeeded(self, address: str) -> None:
        """Notes a whole answer."""
        if self._failures:
            self._failures.pop(address, None)

    def answered(self, address: str) -> bool:
        """Notes that an answer begins; returns True if more requests may come than before."""
        found = self._ejected.get(address)
        if found is None:
            return False
        if not found.room:
            # Sent while it was away, since there was no other; the next probe lets it back.
            return False
        found.room *= 2
        if found.room >= FULL:
            self._forget(address)
        return True

    async def probe(
        self, reaches: Callable[[str], Awaitable[bool]], back: Callable[[], None]
    ) -> None:
        """Looks after ejected engines until cancelled; calls `back` when one may get more."""
        async with asyncio.TaskGroup() as group:
            while True:
                address = await self._new.get()
                group.create_task(self._look_after(address, self._ejected[address], reaches, back))

    async def _look_after(
        self,
        address: str,
        ejected: Ejected,
        reaches: Callable[[str], Awaitable[bool]],
        back: Callable[[], None],
    ) -> None:
        pause = FIRST_SECONDS
        while self._ejected.get(address) is ejected:
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_SECONDS)
            if await _reached(address, reaches):
                await self._let_back(address, ejected, back)
            elif asyncio.get_running_loop().time() - ejected.since > FORGOTTEN_SECONDS:
                self._forget(address)
                back()

    async def _let_back(self, address: str, ejected: Ejected, back: Callable[[], None]) -> None:
        """Returns once the engine has failed again, or is like the others."""
        log.info("engine_reached_again", engine=address)
        ejected.failed.clear()
        # What was sent before says nothing of how it is now.
        self._failures.pop(address, None)
        ejected.room = 1
        back()
        try:
            async with asyncio.timeout(BACK_SECONDS):
                await ejected.failed.wait()
        except TimeoutError:
            if self._ejected.get(address) is ejected and ejected.room:
                self._forget(address)
                back()

    def _admits(self, address: str) -> bool:
        found = self._ejected.get(address)
        return found is None or self._active(address) < found.room

    def _forget(self, address: str) -> None:
        del self._ejected[address]
        EJECTED.set(len(self._ejected))


async def _reached(address: str, reaches: Callable[[str], Awaitable[bool]]) -> bool:
    try:
        return await reaches(address)
    except Exception:
        log.exception("engine_not_probed", engine=address)
        return False
