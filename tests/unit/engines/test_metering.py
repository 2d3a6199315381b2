"""Use of engines' caches over time: what is told is near to what is, and changes seldom."""

import asyncio
import random
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.waiting import until

from windlass_agent.engines import metering
from windlass_agent.engines.load import EngineLoad
from windlass_agent.engines.metering import KEPT, QUIET_SECONDS, STEP, CacheMeter, SteppedCache
from windlass_agent.engines.port import EngineError


def changes(uses: list[float], *, seconds: float = 10.0) -> list[tuple[float, int]]:
    """The times at which something was told, and what."""
    cache, found = SteppedCache(), list[tuple[float, int]]()
    for number, used in enumerate(uses):
        if cache.take(number * seconds, used):
            assert cache.percent is not None
            found.append((number * seconds, cache.percent))
    return found


def test_what_stays_is_told_once() -> None:
    assert changes([0.42] * 100) == [(0.0, 40)]
    assert changes([0.0] * 100) == [(0.0, 0)]


def test_a_step_is_told_within_a_minute_or_so() -> None:
    told = changes([0.2] * 10 + [1.0] * 30)
    assert told[0] == (0.0, 20)
    assert next(at for at, percent in told if percent >= 95) <= 190
    assert told[-1][1] == 100


def test_an_uneven_load_is_seldom_told() -> None:
    numbers = random.Random(1)
    told = changes([min(1.0, max(0.0, numbers.gauss(0.6, 0.05))) for _ in range(1000)])
    assert len(told) < 70
    wild = changes([float(number % 6 > 2) for number in range(1000)])
    assert all(after - before >= QUIET_SECONDS for (before, _), (after, _) in pairwise(wild))


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20), st.floats(0, 1))
def test_what_lasts_is_told_with_no_more_than_a_step_off(before: list[float], used: float) -> None:
    cache = SteppedCache()
    for number, one in enumerate([*before, *[used] * 40]):
        cache.take(number * 10.0, one)
    assert cache.percent is not None
    assert 0 <= cache.percent <= 100
    assert cache.percent % STEP == 0
    assert abs(cache.percent - 100 * used) <= KEPT + 0.01


def test_what_is_not_known_is_not_zero() -> None:
    cache = SteppedCache()
    assert not cache.take(0.0, None)
    assert cache.load() is None
    assert cache.take(1.0, 0.0)
    load = cache.load()
    assert load is not None
    assert (load.HasField("cache_percent"), load.cache_percent) == (True, 0)
    assert cache.take(2.0, None)
    assert cache.load() is None


async def test_an_engine_that_says_nothing_any_more_is_not_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(metering, "MEASURE_SECONDS", 0.01)
    said: list[EngineLoad | None] = [EngineLoad(cache_used=0.5)]

    class Control:
        async def load(self) -> EngineLoad:
            if said[-1] is None:
                raise EngineError("no answer")
            return said[-1]

    told: list[int | None] = []
    control: Any = Control()
    meter = CacheMeter(lambda: told.append(load.cache_percent if (load := meter.load()) else None))
    keeping = asyncio.create_task(meter.keep("eng-1", control))
    await until(lambda: told == [50])
    said.append(None)
    await until(lambda: told == [50, None])
    said.append(EngineLoad())
    said.append(EngineLoad(cache_used=1.0))
    await until(lambda: told == [50, None, 100])
    keeping.cancel()
    await asyncio.gather(keeping, return_exceptions=True)
    assert meter.load() is None, "it serves no more"
