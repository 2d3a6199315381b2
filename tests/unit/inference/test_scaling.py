"""Number of engines by load: it follows, it settles, it never swings, it stays in bounds."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.inference.planning.scaling import (
    DOWN_SECONDS,
    TOLERANCE,
    UP_AT_LEAST,
    USE_TOLERANCE,
    EngineUse,
    ModelLoad,
    ScaleBounds,
    Scaler,
    recommended,
)
from windlass_agent.engines.metering import SteppedMean, stepped_percent

BOUNDS = ScaleBounds(least=1, most=10, target=8)
_BOUNDS = st.builds(
    lambda least, more, target: ScaleBounds(least, least + more, target),
    st.integers(0, 5), st.integers(1, 20), st.integers(1, 50),
)  # fmt: skip
_CACHES = st.lists(st.none() | st.integers(0, 100), max_size=12)
_LOADS = st.lists(st.integers(0, 400), min_size=1, max_size=60)


def used(requests: int, cache: Sequence[int | None]) -> ModelLoad:
    """A load of engines whose caches are used so much."""
    return ModelLoad(requests, engines=[EngineUse(cache=one) for one in cache])


def run(loads: list[int], bounds: ScaleBounds, *, start: int, seconds: float = 1.0) -> list[int]:
    """The numbers of engines over time, where each decision comes true at once."""
    scaler, current, found = Scaler(), start, []
    for number, load in enumerate(loads):
        current = scaler.decide(number * seconds, current, ModelLoad(load), bounds)
        found.append(current)
    return found


def test_a_step_in_load_is_followed_at_once() -> None:
    assert run([24], BOUNDS, start=1) == [3]
    # Not faster than the HPA: by as many as there are, or by four.
    assert run([800] * 2, ScaleBounds(1, 64, 8), start=1) == [1 + UP_AT_LEAST] * 2
    assert run([800] * 33, ScaleBounds(1, 64, 8), start=1)[-1] == 20


def test_fewer_follow_once_nothing_else_was_recommended_for_a_while() -> None:
    found = run([24] + [1] * 400, BOUNDS, start=3)
    assert found[: int(DOWN_SECONDS)] == [3] * int(DOWN_SECONDS)
    assert found[-1] == 1


def test_a_load_that_comes_and_goes_keeps_what_it_needs() -> None:
    found = run(([24] * 30 + [0] * 60) * 10, BOUNDS, start=3)
    assert set(found) == {3}


def test_a_new_planner_ends_nothing_at_once() -> None:
    assert run([0] * 100, BOUNDS, start=7) == [7] * 100


def test_a_planner_that_slept_ends_nothing_at_once() -> None:
    scaler = Scaler()
    assert scaler.decide(0.0, 5, ModelLoad(40), BOUNDS) == 5
    # The database was away for long, and no gateway has said anything since.
    assert scaler.decide(DOWN_SECONDS + 100, 5, ModelLoad(0), BOUNDS) == 5


def test_none_become_one_by_one_request_and_none_again() -> None:
    bounds = ScaleBounds(0, 3, 8)
    found = run([1] * 10 + [0] * 400, bounds, start=0)
    assert (found[0], found[-1]) == (1, 0)


@given(_LOADS, _BOUNDS, st.integers(0, 30))
def test_it_stays_in_bounds(loads: list[int], bounds: ScaleBounds, start: int) -> None:
    assert all(bounds.least <= one <= bounds.most for one in run(loads, bounds, start=start))


@given(st.integers(0, 400), _BOUNDS, st.integers(0, 25))
def test_it_settles_under_a_constant_load_and_never_swings(
    load: int, bounds: ScaleBounds, start: int
) -> None:
    found = run([load] * 400, bounds, start=start, seconds=2.0)
    last = found[-1]
    assert found[-100:] == [last] * 100
    assert recommended(last, ModelLoad(load), bounds) == last
    # Up or down, never both.
    path = [start, *found] if bounds.least <= start <= bounds.most else found
    rises = [after - before for before, after in itertools.pairwise(path)]
    assert not (any(one > 0 for one in rises) and any(one < 0 for one in rises))


@given(st.integers(1, 400), _BOUNDS)
def test_what_it_settles_at_is_enough_and_not_too_much(load: int, bounds: ScaleBounds) -> None:
    last = run([load] * 400, bounds, start=bounds.least, seconds=2.0)[-1]
    needed = math.ceil(load / bounds.target)
    if bounds.least < last < bounds.most:
        assert load <= last * bounds.target * (1 + TOLERANCE)
        assert last <= needed


# Requests are no matter in these: each engine may have any number.
FULL = ScaleBounds(least=1, most=10, target=1000, target_cache=90)


@pytest.mark.parametrize(
    ("cache", "expected"),
    [
        # Few requests, long prompts.
        ([100], 2),
        ([100, 100, 100, 100], 5),
        # A full vLLM preempts, and shows a little less.
        ([95, 95], 3),
        ([90, 90], 2),
        # Above the target, and no further than a step may hide.
        ([95, 90], 2),
        # One that starts has none yet, and may take of the others.
        ([100, None], 2),
        ([100, 100, 100, None], 4),
        # Held for what is there, though requests need one.
        ([60, 60, 60], 3),
        ([50, 50, 50], 2),
        ([50, 50, None], 3),
        ([0, 0, 0], 1),
        ([None, None], 1),
    ],
)
def test_full_caches_ask_for_more_engines_than_requests_do(
    cache: list[int | None], expected: int
) -> None:
    assert recommended(len(cache), used(20, cache), FULL) == expected
    off = replace(FULL, target_cache=0)
    assert recommended(len(cache), used(20, cache), off) == 1, "no target, no matter"


def test_no_engine_is_added_that_no_request_would_come_to() -> None:
    assert recommended(2, used(2, [100, 100]), FULL) == 2
    assert recommended(2, used(0, [100, 100]), FULL) == 1, "whatever its agent says"


@given(st.integers(0, 400), _BOUNDS, st.integers(0, 100), _CACHES, st.integers(0, 4))
def test_caches_add_to_what_requests_need_and_stay_in_bounds(
    load: int, bounds: ScaleBounds, target: int, cache: list[int | None], unsaid: int
) -> None:
    current, bounds = len(cache) + unsaid, replace(bounds, target_cache=target)
    by_requests = recommended(current, ModelLoad(load), bounds)
    found = recommended(current, used(load, cache), bounds)
    assert max(by_requests, bounds.least) <= found <= bounds.most
    known = [one for one in cache if one is not None]
    if not known:
        assert found == by_requests, "what is not known changes nothing"
    if found > max(by_requests, current):
        assert sum(known) > (target + USE_TOLERANCE) * current


@given(
    st.integers(0, 4000), st.integers(1, 100), st.integers(2, 40), st.integers(1, 40),
    st.integers(1, 200),
)  # fmt: skip
@settings(max_examples=40)
def test_a_constant_use_of_caches_settles_though_agents_say_it_in_steps(
    total: int, target: int, most: int, start: int, load: int
) -> None:
    bounds = ScaleBounds(1, most, 1000, target)
    scaler, current, engines, found = Scaler(), start, list[SteppedMean](), []
    for number in range(800):
        engines = engines[:current]
        cache = [one.told for one in engines] + [None] * (current - len(engines))
        engines += [stepped_percent() for _ in range(current - len(engines))]
        for one in engines:
            one.take(number * 10.0, min(100.0, total / current))
        current = scaler.decide(number * 10.0, current, used(load, cache), bounds)
        found.append(current)
    last = found[-1]
    assert found[-200:] == [last] * 200
    if last < min(most, load):
        # One step, and what a step may hide.
        assert min(100, total / last) <= target + 2 * USE_TOLERANCE
    rises = [after - before for before, after in itertools.pairwise(found) if after != before]
    turns = sum(before * after < 0 for before, after in itertools.pairwise(rises))
    assert turns <= 1, "it may go too far while means follow, and back, and never again"
