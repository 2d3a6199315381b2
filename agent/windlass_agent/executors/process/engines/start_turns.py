"""Turns of the engines that start on a machine."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

# A start that takes longer lets the next one begin beside it.
TURN_SECONDS = 20.0


class StartTurns:
    """Bounds how many engines start at once: a start uses the processors that others serve with."""

    def __init__(self, size: int, *, seconds: float = TURN_SECONDS):
        """Gives `size` turns at once, each for `seconds` at most."""
        self._free = asyncio.Semaphore(size)
        self._seconds = seconds

    @asynccontextmanager
    async def turn(self, waiting: Callable[[], None]) -> AsyncIterator[None]:
        """Holds a turn, first come, first served; calls `waiting` if others have all of them."""
        if self._free.locked():
            waiting()
        await self._free.acquire()
        held = True

        def give_back() -> None:
            nonlocal held
            if held:
                held = False
                self._free.release()

        timer = asyncio.get_running_loop().call_later(self._seconds, give_back)
        try:
            yield
        finally:
            timer.cancel()
            give_back()
