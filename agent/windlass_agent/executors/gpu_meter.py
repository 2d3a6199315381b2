"""Measuring of GPUs that engines use, as far as somebody asks."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Hashable, Mapping
from typing import Generic, TypeVar

from windlass_agent.engines.metering import MEASURE_SECONDS
from windlass_agent.machine import Device

# What was measured longer ago says nothing of now.
RECENT_SECONDS = 3 * MEASURE_SECONDS

Key = TypeVar("Key", bound=Hashable)
# Measures parts from 0 to 1; without those that are not known. Never raises.
Measure = Callable[[Collection[Key]], Awaitable[Mapping[Key, float]]]


class GpuMeter(Generic[Key]):
    """Measures how busy GPUs are, each by its key, while somebody asks about them."""

    def __init__(self, measure: Measure[Key]):
        self._measure = measure
        self._asked: set[Key] = set()
        self._is_asked = asyncio.Event()
        self._uses: Mapping[Key, float] = {}
        self._measured_at = 0.0

    def use(self, keys: Collection[Key]) -> float | None:
        """Returns the mean part from 0 to 1 that they are busy; None where one is not known."""
        if not keys:
            return None
        self._asked.update(keys)
        self._is_asked.set()
        is_old = asyncio.get_running_loop().time() - self._measured_at > RECENT_SECONDS
        if is_old or any(key not in self._uses for key in keys):
            return None
        return sum(self._uses[key] for key in keys) / len(keys)

    async def run(self) -> None:
        """Measures until cancelled."""
        while True:
            await self._is_asked.wait()
            self._is_asked.clear()
            asked, self._asked = self._asked, set()
            self._uses = await self._measure(asked)
            self._measured_at = asyncio.get_running_loop().time()
            await asyncio.sleep(MEASURE_SECONDS)


DeviceMeter = GpuMeter[Device]
