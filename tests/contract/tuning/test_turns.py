"""Turns on the engine: fair by weight over projects, counted in tokens."""

from concurrent.futures import Future
from typing import Any

from tests.support.factories import tuning_engines as make

from windlass_agent.tuning.requests.limits import TuningLimits
from windlass_agent.tuning.requests.operations import ComputeLoss, RunSpec

SMALL = TuningLimits(pass_tokens=48)
FLOOD = 10_000


def forward(draw: int, length: int = 12) -> ComputeLoss:
    return ComputeLoss(examples=(make.example(draw, length),), loss="cross_entropy", learns=False)


def done(futures: "list[Future[Any]]") -> int:
    return sum(future.done() for future in futures)


def test_ten_thousand_operations_delay_another_project_by_one_pass() -> None:
    engine = make.engine(SMALL)
    engine.open("flood", make.spec("greedy"))
    engine.open("run", make.spec("modest"))
    flood = [engine.submit("flood", forward(place % 7)) for place in range(FLOOD)]
    engine.advance()
    own = [engine.submit("run", make.learning(make.example(1))), engine.submit("run", make.STEP)]
    engine.advance()
    assert own[0].done()
    engine.advance()
    assert own[1].done()
    # Until then the other had what was left of each pass, in the order of its queue.
    assert done(flood[:11]) == 11
    assert done(flood[11:]) == 0


def test_ten_thousand_runs_operations_do_not_make_a_project_weigh_more() -> None:
    engine = make.engine(SMALL)
    for place in range(8):
        engine.open(f"many{place}", make.spec("greedy"))
    engine.open("run", make.spec("modest"))
    many = [engine.submit(f"many{place}", forward(place)) for place in range(8) for _ in range(9)]
    own = [engine.submit("run", forward(1)) for _ in range(9)]
    for _ in range(4):
        engine.advance()
    assert (done(many), done(own)) == (8, 8)


def test_a_weight_is_the_share_of_tokens() -> None:
    engine = make.engine(SMALL)
    engine.open("light", make.spec("one"))
    heavy = make.spec("three")
    engine.open("heavy", RunSpec(project="three", adapter=heavy.adapter, weight=3.0))
    light_ones = [engine.submit("light", forward(place)) for place in range(30)]
    heavy_ones = [engine.submit("heavy", forward(place)) for place in range(30)]
    for _ in range(5):
        engine.advance()
    assert (done(light_ones), done(heavy_ones)) == (5, 15)


def test_tokens_count_and_not_examples() -> None:
    engine = make.engine(SMALL)
    engine.open("long", make.spec("one"))
    engine.open("short", make.spec("other"))
    long_ones = [engine.submit("long", forward(place, 24)) for place in range(30)]
    short_ones = [engine.submit("short", forward(place, 6)) for place in range(80)]
    for _ in range(10):
        engine.advance()
    assert 4 * done(long_ones) - done(short_ones) in range(-4, 5)


def test_who_was_away_has_saved_nothing_up() -> None:
    engine = make.engine(SMALL)
    engine.open("one", make.spec("one"))
    engine.open("late", make.spec("late"))
    make.losses(engine, "late", forward(1))
    ones = [engine.submit("one", forward(place)) for place in range(60)]
    for _ in range(5):
        engine.advance()
    before = done(ones)
    late = [engine.submit("late", forward(place)) for place in range(60)]
    for _ in range(4):
        engine.advance()
    assert done(late) == 8
    assert done(ones) - before == 8


def test_an_exclusive_run_takes_turns_with_others() -> None:
    engine = make.engine(SMALL)
    engine.open("alone", make.spec("one", exclusive=True))
    engine.open("others", make.spec("other"))
    alone = [engine.submit("alone", forward(place)) for place in range(20)]
    others = [engine.submit("others", forward(place)) for place in range(40)]
    for _ in range(10):
        engine.advance()
    assert done(alone) * 12 <= done(others) * 12 + 48
    assert done(others) * 12 <= done(alone) * 12 + 48
    assert done(alone) + done(others) > 10


def test_a_barrier_waits_for_what_is_before_it() -> None:
    engine = make.engine(SMALL)
    engine.open("run", make.spec())
    long = make.learning(*(make.example(draw) for draw in range(9)))
    futures = [engine.submit("run", operation) for operation in (long, make.STEP, forward(3))]
    seen = []
    while engine.advance():
        seen.append(tuple(future.done() for future in futures))
    assert (True, False, False) in seen
    assert seen == sorted(seen)
    assert futures[0].result().metrics["loss:sum"] > 0
    assert engine.state("run").step == 1


def test_an_operation_that_nobody_waits_for_leaves_no_trace_and_holds_nothing_up() -> None:
    engine = make.engine(SMALL)
    engine.open("run", make.spec())
    long = engine.submit("run", make.learning(*(make.example(draw) for draw in range(9))))
    save = engine.submit("run", make.STEP)
    engine.advance()
    assert long.cancel()
    make.drive(engine)
    assert save.result(timeout=0).metrics == {"gradient_norm:max": 0.0}
    assert make.gradients(engine, "run") == {}
    assert engine._runs["run"].progress == {}


def test_operations_up_to_the_next_barrier_share_a_pass() -> None:
    engine = make.engine()
    for name in ("one", "other"):
        engine.open(name, make.spec(name))
    before = [engine.submit(name, forward(draw)) for name in ("one", "other") for draw in range(3)]
    steps = [engine.submit(name, make.STEP) for name in ("one", "other")]
    engine.advance()
    assert (done(before), done(steps)) == (6, 0)
