"""Number of engines by how long requests wait, and by GPUs: it settles, and never swings."""

import itertools
import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.inference.planning.scaling import (
    AWAY,
    DOWN_SECONDS,
    EngineUse,
    ModelLoad,
    ScaleBounds,
    Scaler,
    recommended,
)

# Requests alone ask for one engine.
WAITS = ScaleBounds(least=1, most=20, target=1000, target_wait_seconds=2)


class Engines:
    """Engines of which each answers so many requests at once, and starts within some seconds."""

    def __init__(self, at_once: int, *, there: int, starts: float = 0.0, queues: bool = False):
        """`queues` has requests wait in the engines, else at the gateways."""
        self.at_once, self.starts, self.queues = at_once, starts, queues
        self.now = 0.0
        self.made_at = [-1000.0] * there
        self.waits_since: float | None = None
        self.scaler = Scaler()

    def load(self, requests: int) -> ModelLoad:
        answering = sum(self.now >= one + self.starts for one in self.made_at)
        waiting = max(0, requests - answering * self.at_once) if answering else 0
        self.waits_since = (self.waits_since or self.now) if waiting else None
        waited = self.now - self.waits_since if self.waits_since else 0.0
        away = [AWAY] * (len(self.made_at) - answering)
        if not self.queues:
            uses = [EngineUse()] * answering + away
            return ModelLoad(requests, waiting, waited, engines=uses)
        use = EngineUse(wait_seconds=waited, at_once=self.at_once if waiting else None)
        return ModelLoad(requests, engines=[use] * answering + away)

    def run(self, loads: list[int], bounds: ScaleBounds) -> list[int]:
        """The numbers of engines over time, where each decision comes true."""
        found = []
        for requests in loads:
            self.now += 2.0
            load = self.load(requests)
            number = self.scaler.decide(self.now, len(self.made_at), load, bounds)
            more = number - len(self.made_at)
            self.made_at = self.made_at[:number] + [self.now] * more
            found.append(number)
        return found


@pytest.mark.parametrize("queues", [False, True])
def test_a_wait_that_is_too_long_makes_as_many_engines_as_answer_all(*, queues: bool) -> None:
    found = Engines(8, there=1, starts=60.0, queues=queues).run([40] * 600, WAITS)
    # At once as many as it takes, and none of them too many while they start.
    assert found[:2] == [1, 1], "nobody has waited for long"
    assert found[3] == found[-1] == 5
    assert sorted(found) == found


def test_a_wait_within_the_target_makes_none() -> None:
    load = ModelLoad(40, 30, 1.9, engines=[EngineUse()])
    assert Scaler().decide(0.0, 1, load, WAITS) == 1
    assert Scaler().decide(0.0, 1, replace(load, line_seconds=2.1), WAITS) == 4
    off = ScaleBounds(least=1, most=20, target=1000)
    assert Scaler().decide(0.0, 1, replace(load, line_seconds=600.0), off) == 1


def test_what_lets_others_go_first_makes_no_engine() -> None:
    # Eight are answered, four wait, and a hundred let them.
    load = ModelLoad(112, 4, 9.0, 100, [EngineUse()])
    assert Scaler().decide(0.0, 1, load, WAITS) == 2
    assert Scaler().decide(0.0, 1, replace(load, requests=108, in_line=0), WAITS) == 1


def test_nothing_is_learned_of_engines_that_do_not_answer() -> None:
    assert Scaler().decide(0.0, 2, ModelLoad(40, engines=[AWAY, AWAY]), WAITS) == 2
    assert Scaler().decide(0.0, 2, ModelLoad(40, 9, 60.0, 0, [AWAY, AWAY]), WAITS) == 2


def test_engines_that_answer_more_without_a_wait_may_have_more() -> None:
    engines = Engines(4, there=1)
    assert engines.run([16] * 300, WAITS)[-1] == 4
    # Shorter prompts: what comes is answered at once.
    engines.at_once = 8
    assert engines.run([32] * 300, WAITS)[-1] == 4
    assert engines.run([16] * 300, WAITS)[-1] == 2


def test_what_was_learned_with_other_settings_counts_no_more() -> None:
    engines = Engines(4, there=1)
    assert engines.run([16] * 300, WAITS)[-1] == 4
    anew = replace(WAITS, target_wait_seconds=600, set_at=1.0)
    found = engines.run([16] * 200, anew)
    assert (found[0], found[-1]) == (4, 1)


def test_agents_make_no_more_engines_than_there_are_requests() -> None:
    lies = EngineUse(cache=100, gpu=100, wait_seconds=3600.0, at_once=0)
    bounds = ScaleBounds(1, 20, 1000, 90, 50, 1)
    for requests in (0, 1, 3):
        load = ModelLoad(requests, engines=[lies] * 2)
        assert Scaler().decide(0.0, 2, load, bounds) == max(2, requests)


@given(
    st.integers(0, 300), st.integers(1, 40), st.integers(1, 20), st.integers(1, 30),
    st.sampled_from([0.0, 30.0, 200.0]), st.integers(1, 60), st.booleans(),
)  # fmt: skip
@settings(max_examples=60)
def test_a_constant_load_settles_where_nobody_waits_and_never_swings(
    requests: int, at_once: int, most: int, start: int, starts: float, target: int, queues: bool
) -> None:
    bounds = ScaleBounds(1, most, 1000, target_wait_seconds=target)
    engines = Engines(at_once, there=start, starts=starts, queues=queues)
    found = engines.run([requests] * 1000, bounds)
    last = found[-1]
    assert found[-int(DOWN_SECONDS) :] == [last] * int(DOWN_SECONDS)
    assert all(1 <= one <= most for one in found)
    needed = min(most, max(1, math.ceil(requests / at_once)))
    assert last == needed
    rises = [after - before for before, after in itertools.pairwise(found) if after != before]
    turns = sum(before * after < 0 for before, after in itertools.pairwise(rises))
    assert turns <= 1, "too few once, as nobody knew how many it takes"


@pytest.mark.parametrize(
    ("gpu", "expected"),
    [([100], 2), ([50, 50], 2), ([84, 84], 2), ([90, 90], 3), ([100, None], 2), ([20, 20], 1)],
)
def test_busy_gpus_ask_for_more_engines(gpu: list[int | None], expected: int) -> None:
    bounds = ScaleBounds(least=1, most=10, target=1000, target_gpu=80)
    load = ModelLoad(20, engines=[EngineUse(gpu=one) for one in gpu])
    assert recommended(len(gpu), load, bounds) == expected
    assert recommended(len(gpu), load, ScaleBounds(1, 10, 1000)) == 1, "no target, no matter"


@given(st.integers(1, 200), st.integers(1, 100), st.integers(1, 16), st.floats(0.3, 1.0))
@settings(max_examples=60)
def test_a_constant_load_of_gpus_settles(
    requests: int, target: int, start: int, shrinks: float
) -> None:
    """Of a GPU a share of the requests takes less; by how much differs, and all take no less."""
    bounds, scaler, current, found = ScaleBounds(1, 16, 1000, 0, target), Scaler(), start, []
    # Long enough for several windows: each takes some of those that are too many.
    for number in range(700):
        percent = 5 * round(20 * min(1.0, requests / 20 / current**shrinks))
        load = ModelLoad(requests, engines=[EngineUse(gpu=percent)] * current)
        current = scaler.decide(number * 10.0, current, load, bounds)
        found.append(current)
    assert found[-200:] == [found[-1]] * 200
    rises = [after - before for before, after in itertools.pairwise(found) if after != before]
    turns = sum(before * after < 0 for before, after in itertools.pairwise(rises))
    assert turns <= 1


def test_the_mean_of_a_burst_that_is_over_teaches_nothing_of_what_came_after() -> None:
    scaler = Scaler()

    def decide(at: float, requests: int, there: int, waited: float) -> int:
        use = EngineUse(wait_seconds=waited, at_once=8 if waited else None)
        return scaler.decide(at, there, ModelLoad(requests, engines=[use] * there), WAITS)

    assert decide(0.0, 160, 10, 9.0) == 20
    # The engines' mean is of half a minute, and forty requests wait for nothing any more.
    assert decide(30.0, 40, 20, 5.0) == 20
    for at in range(60, 2000, 30):
        found = decide(float(at), 40, 20, 0.0)
    assert found == 5
