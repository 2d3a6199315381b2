"""Measuring of one engine's load over time, and what of it is worth telling the control plane."""

import asyncio
import math
from collections import deque
from collections.abc import Callable

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.core import telemetry
from windlass.workload_phases import MAX_AT_ONCE, MAX_WAIT_SECONDS
from windlass_agent.engines.load import EngineLoad
from windlass_agent.engines.port import CapabilityMissing, EngineControl, EngineError

MEASURE_SECONDS = 10.0
# An engine that has not said its load so many times in a row has none that is known.
SILENT_TIMES = 3
# Percent points. A use within KEPT of the one that was told is told no anew.
STEP, KEPT = 5, 4
# Milliseconds, likewise; and the part of other numbers that may be off.
WAIT_STEP, PART = 100, 0.25
# What is told is the mean over about so long, and changes no sooner than that.
MEAN_SECONDS = 30.0
QUIET_SECONDS = 20.0
# Tells the part from 0 to 1 that an engine's GPUs are busy; None where that is not known.
GpuUse = Callable[[], float | None]

log = telemetry.logger("engines")


async def keep_measuring(
    engine: str,
    control: EngineControl,
    told: Callable[[EngineLoad | None], None],
    *,
    every: float,
) -> None:
    """Tells an engine's load every now and then, until cancelled; None once it is not known.

    However often that is, the wait is over MEASURE_SECONDS at least: in less hardly any request
    may end. Returns where the engine has no load to tell.
    """
    clock = asyncio.get_running_loop().time
    silent, pages = 0, deque[tuple[float, EngineLoad]]()
    while True:
        try:
            load = await control.load()
        except CapabilityMissing:
            return
        except EngineError as error:
            log.info("engine_load_unknown", engine=engine, error=str(error))
            silent += 1
            if silent == SILENT_TIMES:
                told(None)
        else:
            silent, now = 0, clock()
            while len(pages) > 1 and now - pages[1][0] >= MEASURE_SECONDS:
                pages.popleft()
            # That is the newest one which is old enough, if any is.
            at, before = pages[0] if pages else (now, None)
            told(load.since(before, now - at) if now - at >= MEASURE_SECONDS else load)
            pages.append((now, load))
        await asyncio.sleep(every)


class SteppedMean:
    """Mean of a number over time, in steps that change seldom.

    Each change costs the control plane a row: one number of a thousand engines fifty a second at
    the worst, and none while they idle or are evenly busy.
    """

    def __init__(self, step: int, kept: float, part: float = 0.0):
        """The mean may be off by `kept`, or by a part of what was told."""
        self._step = step
        self._kept = kept
        self._part = part
        # None while it is not known.
        self.told: int | None = None
        self._mean = 0.0
        self._seen_at = 0.0
        self._told_at = 0.0

    def take(self, now: float, value: float | None) -> bool:
        """Takes a number, or None, in seconds of one clock; True if a step changed."""
        before = self.told
        if value is None:
            self.told = None
        elif before is None:
            self._mean = value
            self._tell(now)
        else:
            weight = 1 - math.exp((self._seen_at - now) / MEAN_SECONDS)
            self._mean += weight * (value - self._mean)
            off = abs(self._mean - before)
            if off > max(self._kept, self._part * before) and now - self._told_at >= QUIET_SECONDS:
                self._tell(now)
        self._seen_at = now
        return self.told != before

    def _tell(self, now: float) -> None:
        self.told = self._step * round(self._mean / self._step)
        self._told_at = now


def stepped_percent() -> SteppedMean:
    """The steps of a part, which is taken in percent."""
    return SteppedMean(STEP, KEPT)


class SteppedLoad:
    """Load of an engine as its status tells it."""

    def __init__(self) -> None:
        self._cache = stepped_percent()
        self._gpu = stepped_percent()
        self._wait_ms = SteppedMean(WAIT_STEP, WAIT_STEP, PART)
        self._at_once = SteppedMean(1, 1.0, PART)
        self._requests = SteppedMean(1, 1.0, PART)

    def take(self, now: float, load: EngineLoad | None, gpu: float | None) -> bool:
        """Takes what is known, in seconds of one clock; True if a step changed.

        `gpu` is the part from 0 to 1 that its GPUs are busy.
        """
        cache = load.cache_used if load is not None else None
        wait = load.wait_seconds if load is not None else None
        requests = min(load.running + load.waiting, MAX_AT_ONCE) if load is not None else None
        changes = [
            self._cache.take(now, None if cache is None else 100 * cache),
            self._gpu.take(now, None if gpu is None else 100 * gpu),
            self._wait_ms.take(now, None if wait is None else 1000 * min(wait, MAX_WAIT_SECONDS)),
            self._requests.take(now, requests),
        ]
        if load is None:
            changes.append(self._at_once.take(now, None))
        elif load.waiting and load.running:
            # It could answer no more of them; what it has while nobody waits says nothing.
            changes.append(self._at_once.take(now, min(load.running, MAX_AT_ONCE)))
        return any(changes)

    def message(self) -> pb.ServingLoad | None:
        """The load of a status; None where none is known."""
        wait = self._wait_ms.told
        said = pb.ServingLoad(
            cache_percent=self._cache.told,
            gpu_percent=self._gpu.told,
            wait_seconds=None if wait is None else wait / 1000,
            requests_at_once=self._at_once.told,
            requests=self._requests.told,
        )
        return said if said.ListFields() else None


class EngineMeter:
    """Measures an engine's load while it serves; `changed` is called for a new step."""

    def __init__(self, changed: Callable[[], None], gpu_use: GpuUse = lambda: None):
        self._changed = changed
        self._gpu_use = gpu_use
        self._load = SteppedLoad()

    def load(self) -> pb.ServingLoad | None:
        """The load for the engine's status."""
        return self._load.message()

    async def keep(self, engine: str, control: EngineControl) -> None:
        """Measures until cancelled; nothing is known from then on."""
        try:
            await keep_measuring(engine, control, self._note, every=MEASURE_SECONDS)
        finally:
            self._load = SteppedLoad()

    def _note(self, load: EngineLoad | None) -> None:
        now = asyncio.get_running_loop().time()
        if self._load.take(now, load, self._gpu_use()):
            self._changed()
