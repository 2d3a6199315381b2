"""Measuring of one engine's load over time, and what of it is worth telling the control plane."""

import asyncio
import math
from collections.abc import Callable

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.core import telemetry
from windlass_agent.engines.load import EngineLoad
from windlass_agent.engines.port import EngineControl, EngineError

MEASURE_SECONDS = 10.0
# An engine that has not said its load so many times in a row has none that is known.
SILENT_TIMES = 3
# Percent points. A use within KEPT of the one that was told is told no anew.
STEP, KEPT = 5, 4
# What is told is the mean over about so long, and changes no sooner than that.
MEAN_SECONDS = 30.0
QUIET_SECONDS = 20.0

log = telemetry.logger("engines")


async def keep_measuring(
    engine: str, control: EngineControl, told: Callable[[EngineLoad | None], None]
) -> None:
    """Tells an engine's load every now and then, until cancelled; None once it is not known."""
    silent = 0
    while True:
        try:
            load = await control.load()
        except EngineError as error:
            log.info("engine_load_unknown", engine=engine, error=str(error))
            silent += 1
            if silent == SILENT_TIMES:
                told(None)
        else:
            silent = 0
            told(load)
        await asyncio.sleep(MEASURE_SECONDS)


class SteppedCache:
    """Use of an engine's room for keys and values, in steps that change seldom.

    Each change costs the control plane a row: of a thousand engines, fifty a second at the worst,
    and none of those that idle or are evenly busy.
    """

    def __init__(self) -> None:
        # None while it is not known.
        self.percent: int | None = None
        self._mean = 0.0
        self._seen_at = 0.0
        self._told_at = 0.0

    def take(self, now: float, used: float | None) -> bool:
        """Takes a part from 0 to 1, or None, in seconds of one clock; True if a step changed."""
        before = self.percent
        if used is None:
            self.percent = None
        elif before is None:
            self._mean = 100 * used
            self._tell(now)
        else:
            weight = 1 - math.exp((self._seen_at - now) / MEAN_SECONDS)
            self._mean += weight * (100 * used - self._mean)
            if abs(self._mean - before) > KEPT and now - self._told_at >= QUIET_SECONDS:
                self._tell(now)
        self._seen_at = now
        return self.percent != before

    def load(self) -> pb.ServingLoad | None:
        """The load of a status; None where none is known."""
        return None if self.percent is None else pb.ServingLoad(cache_percent=self.percent)

    def _tell(self, now: float) -> None:
        self.percent = STEP * round(self._mean / STEP)
        self._told_at = now


class CacheMeter:
    """Measures the use of an engine's cache while it serves; `changed` is called for a new step."""

    def __init__(self, changed: Callable[[], None]):
        self._changed = changed
        self._cache = SteppedCache()

    def load(self) -> pb.ServingLoad | None:
        """The load for the engine's status."""
        return self._cache.load()

    async def keep(self, engine: str, control: EngineControl) -> None:
        """Measures until cancelled; nothing is known from then on."""
        try:
            await keep_measuring(engine, control, self._note)
        finally:
            self._cache = SteppedCache()

    def _note(self, load: EngineLoad | None) -> None:
        now = asyncio.get_running_loop().time()
        if self._cache.take(now, load.cache_used if load is not None else None):
            self._changed()
