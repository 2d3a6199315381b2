"""Load of engines over time: what is told is near to what is, and changes seldom."""

import asyncio
import random
from itertools import pairwise
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.waiting import until

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.workload_phases import is_possible
from windlass_agent.engines import metering
from windlass_agent.engines.load import EngineLoad
from windlass_agent.engines.metering import (
    KEPT,
    QUIET_SECONDS,
    STEP,
    EngineMeter,
    SteppedLoad,
    stepped_percent,
)
from windlass_agent.engines.port import EngineError


def changes(uses: list[float], *, seconds: float = 10.0) -> list[tuple[float, int]]:
    """The times at which something was told, and what."""
    cache, found = stepped_percent(), list[tuple[float, int]]()
    for number, used in enumerate(uses):
        if cache.take(number * seconds, 100 * used):
            assert cache.told is not None
            found.append((number * seconds, cache.told))
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
    cache = stepped_percent()
    for number, one in enumerate([*before, *[used] * 40]):
        cache.take(number * 10.0, 100 * one)
    assert cache.told is not None
    assert 0 <= cache.told <= 100
    assert cache.told % STEP == 0
    assert abs(cache.told - 100 * used) <= KEPT + 0.01


def test_what_is_not_known_is_not_zero() -> None:
    load = SteppedLoad()
    assert not load.take(0.0, None, None)
    assert load.message() is None
    assert load.take(1.0, EngineLoad(cache_used=0.0), None)
    assert load.message() == pb.ServingLoad(cache_percent=0, requests=0)
    assert load.take(2.0, EngineLoad(cache_used=0.0), 0.5)
    assert load.message() == pb.ServingLoad(cache_percent=0, gpu_percent=50, requests=0)
    assert load.take(3.0, EngineLoad(), 0.5)
    assert load.message() == pb.ServingLoad(gpu_percent=50, requests=0)
    assert load.take(4.0, None, None)
    assert load.message() is None


def test_requests_are_told_with_those_that_wait_and_seldom_however_many_come_and_go() -> None:
    load, numbers = SteppedLoad(), random.Random(1)
    assert load.take(0.0, EngineLoad(running=8, waiting=4), None)
    assert load.message() == pb.ServingLoad(requests=12, requests_at_once=8)
    told = 0
    for number in range(1, 1000):
        told += load.take(number * 10.0, EngineLoad(running=numbers.randrange(8, 17)), None)
    said = load.message()
    assert said is not None
    assert 8 <= said.requests <= 16
    assert told < 10


def test_a_wait_is_how_long_the_last_one_waits_as_fast_as_requests_end() -> None:
    def page(waiting: int, finished: int | None) -> EngineLoad:
        return EngineLoad(running=8, waiting=waiting, finished_requests=finished)

    first, later = page(6, 100), page(6, 104)
    assert first.since(None, 10.0).wait_seconds is None, "one page says nothing of it"
    assert later.since(first, 10.0).wait_seconds == 6 * 10.0 / 4
    assert page(0, 104).since(first, 10.0).wait_seconds == 0.0
    assert page(2, 100).since(first, 10.0).wait_seconds == 20.0, "none has ended"
    assert page(2, 3).since(first, 10.0).wait_seconds == 20.0, "it was started anew"
    assert page(2, None).since(first, 10.0).wait_seconds is None
    assert later.since(page(6, None), 10.0).wait_seconds is None


def test_waits_are_told_in_tenths_of_a_second_with_what_is_answered_at_once() -> None:
    load = SteppedLoad()
    assert load.take(0.0, EngineLoad(running=3, wait_seconds=0.0), None)
    assert load.message() == pb.ServingLoad(wait_seconds=0, requests=3), (
        "nobody waits, so it may have more"
    )
    for number in range(1, 30):
        load.take(number * 10.0, EngineLoad(running=8, waiting=5, wait_seconds=4.0), None)
    said = load.message()
    assert said is not None
    assert 3.0 <= said.wait_seconds <= 4.1
    assert said.requests_at_once == 8
    for number in range(30, 60):
        load.take(number * 10.0, EngineLoad(running=2, wait_seconds=0.0), None)
    said = load.message()
    assert said is not None
    assert said.wait_seconds <= 0.1
    assert said.requests_at_once == 8, "it was seen to, and is remembered"
    # What an engine says stays within what is taken.
    huge = EngineLoad(running=2**53, waiting=2**53, wait_seconds=1e300)
    for number in range(60, 90):
        load.take(number * 10.0, huge, None)
    said = load.message()
    assert said is not None
    assert is_possible(said)


@pytest.mark.parametrize("every", [1.0, 10.0])
async def test_a_wait_is_the_same_however_often_it_is_measured(
    every: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One request ends every five seconds, and two wait."""
    loop, passed = asyncio.get_running_loop(), [0.0]
    monkeypatch.setattr(loop, "time", lambda: passed[0])

    async def sleep(seconds: float) -> None:
        passed[0] += seconds
        if passed[0] > 60:
            raise asyncio.CancelledError

    class Control:
        async def load(self) -> EngineLoad:
            return EngineLoad(running=1, waiting=2, finished_requests=int(passed[0] / 5))

    told, control = list[float | None](), cast("Any", Control())

    def tell(load: EngineLoad | None) -> None:
        told.append(load.wait_seconds if load else None)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    with pytest.raises(asyncio.CancelledError):
        await metering.keep_measuring("m", control, tell, every=every)
    assert set(told) == {None, 10.0}
    assert told.count(None) == 10 / every, "a shorter time says nothing"


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
    meter = EngineMeter(lambda: told.append(load.cache_percent if (load := meter.load()) else None))
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
