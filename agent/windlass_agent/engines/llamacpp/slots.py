"""Slots of a server for sequences, each with the prompt that it read last."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from windlass.inference_api.errors import overloaded


@dataclass
class ServerSlot:
    """A slot of llama-server."""

    number: int
    salt: str | None = None
    """Of its last request; None where there was none."""


class ServerSlots:
    """All slots; a prompt is continued only where a request of the same salt came before it."""

    def __init__(self, count: int, *, max_waiting: int):
        self._free = [ServerSlot(number) for number in range(count)]
        self._turns = asyncio.Semaphore(count)
        self._most = count + max_waiting
        self.open = 0
        """Requests that have a slot or wait for one."""

    @asynccontextmanager
    async def take(self, salt: str) -> AsyncIterator[tuple[int, bool]]:
        """Waits for a slot: its number, and True if its prompt may be continued.

        Raises ApiError 503 when too many wait already.
        """
        if self.open >= self._most:
            raise overloaded()
        self.open += 1
        try:
            async with self._turns:
                slot = self._choose(salt)
                try:
                    mine, slot.salt = slot.salt == salt, salt
                    yield slot.number, mine
                finally:
                    self._free.append(slot)
        finally:
            self.open -= 1

    def _choose(self, salt: str) -> ServerSlot:
        """The slot used last by this salt, whose prompt is likeliest the same; else the oldest."""
        own = [slot for slot in self._free if slot.salt == salt]
        slot = own[-1] if own else self._free[0]
        self._free.remove(slot)
        return slot
