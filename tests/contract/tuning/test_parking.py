"""Runs beyond the device's bound are parked in host memory, and return when they are asked."""

from concurrent.futures import Future
from typing import Any

import pytest
import torch
from tests.support.factories import tuning_engines as make

from windlass_agent.tuning.engine import TuningEngine
from windlass_agent.tuning.network.adapter import Tensors
from windlass_agent.tuning.requests.limits import TuningLimits
from windlass_agent.tuning.state.record import RunState

NAMES = [f"run{place}" for place in range(6)]


def trained(limits: TuningLimits) -> tuple[TuningEngine, list[Any]]:
    """Six runs that step three times at once, each exclusive so that bits can be compared."""
    engine = make.engine(limits)
    for place, name in enumerate(NAMES):
        engine.open(name, make.spec(name, rank=1 + place, exclusive=place % 2 == 0))
    futures: list[Future[Any]] = []
    for draw in range(3):
        for name in NAMES:
            futures.append(engine.submit(name, make.learning(make.example(draw))))
            futures.append(engine.submit(name, make.STEP))
    return engine, make.finished(engine, futures)


def test_parked_runs_come_back_as_they_were() -> None:
    bounded, results = trained(TuningLimits(resident_runs=2, pass_tokens=30))
    free, expected = trained(TuningLimits(pass_tokens=30))
    assert len(bounded.resident()) == 2
    assert sorted(free.resident()) == NAMES
    assert [result.metrics for result in results] == [result.metrics for result in expected]
    for name in NAMES:
        assert make.same_bits(make.weights(bounded, name), make.weights(free, name))
        assert bounded.state(name).step == 3


def test_who_was_used_last_stays() -> None:
    engine, _ = trained(TuningLimits(resident_runs=2))
    for name in ("run4", "run1", "run4"):
        make.losses(engine, name, make.learning(make.example(1)))
    assert engine.resident() == ["run1", "run4"]
    make.losses(engine, "run0", make.learning(make.example(1)))
    assert engine.resident() == ["run4", "run0"]
    engine.close("run4")
    assert engine.resident() == ["run0"]


def test_a_pass_holds_no_more_runs_than_the_device() -> None:
    engine = make.engine(TuningLimits(resident_runs=2))
    for name in NAMES:
        engine.open(name, make.spec(name))
    futures = [engine.submit(name, make.learning(make.example(1))) for name in NAMES]
    done = []
    while engine.advance():
        done.append(sum(future.done() for future in futures))
        assert len(engine.resident()) <= 2
    assert done == [2, 4, 6]


def test_every_tensor_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a CPU both places are one, so that what moves is counted."""
    moved: list[tuple[str, int]] = []
    real = RunState.moved

    def counted(state: RunState, device: torch.device) -> RunState:
        parts: list[Tensors] = [state.weights, state.moments, state.gradients]
        moved.append((str(device), sum(map(len, parts))))
        return real(state, device)

    monkeypatch.setattr(RunState, "moved", counted)
    engine = make.engine(TuningLimits(resident_runs=1))
    for name in ("one", "other"):
        engine.open(name, make.spec(name, targets=frozenset(("unembed",))))
    make.losses(engine, "one", make.learning(make.example(1)))
    make.stepped(engine, "one")
    make.losses(engine, "one", make.learning(make.example(1)))
    moved.clear()
    make.losses(engine, "other", make.learning(make.example(1)))
    # Two matrices, two moments and a gradient of each.
    assert moved == [("cpu", 8), ("cpu", 2)]
