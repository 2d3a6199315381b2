"""Losses that tenants write, among others in one pass."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.support.factories import tuning_engines as make

from windlass_agent.tuning.requests.operations import ComputeLoss
from windlass_agent.tuning.requests.refusal import TuningRefused

OWN, WEIGHTS = {"ref": "logprobs"}, {"ref": "weights"}


def document(*steps: tuple[str, list[Any]], loss: str, **metrics: str) -> str:
    """A loss of log-probabilities and weights, whose steps are named by their places."""
    inputs = ["logprobs", "weights"]
    nodes: list[dict[str, Any]] = [
        {"op": "placeholder", "name": name, "target": name} for name in inputs
    ]
    nodes += [
        {"op": "call_function", "name": f"step{place}", "target": target, "args": args}
        for place, (target, args) in enumerate(steps)
    ]
    found = {f"custom/{name}": {"ref": ref} for name, ref in metrics.items()}
    result = {"tuple": [{"ref": loss}, {"dict": found}]}
    nodes.append({"op": "output", "name": "output", "target": "output", "args": [result]})
    return json.dumps(
        {"inputs": [{"name": name, "rank": 1} for name in inputs], "graph": {"nodes": nodes}}
    )


CROSS_ENTROPY = document(
    ("operator.mul", [WEIGHTS, OWN]),
    ("torch.sum", [{"ref": "step0"}]),
    ("operator.neg", [{"ref": "step1"}]),
    loss="step2",
    **{"gain:sum": "step1", "gain:mean": "step1"},
)


def custom(text: str, *draws: int) -> ComputeLoss:
    examples = tuple(make.example(draw) for draw in draws)
    return ComputeLoss(examples=examples, loss="custom", document=text)


def test_a_written_loss_is_the_built_in_one_that_it_spells_out() -> None:
    engine = make.engine()
    for name in ("own", "built-in", "neighbour"):
        engine.open(name, make.spec(name))
    futures = [
        engine.submit("own", custom(CROSS_ENTROPY, 1, 2)),
        engine.submit("built-in", make.learning(make.example(1), make.example(2))),
        engine.submit("neighbour", make.learning(make.policy_example(3), loss="dro")),
    ]
    own, expected, _ = make.finished(engine, futures)
    assert make.same_bits(make.gradients(engine, "own"), make.gradients(engine, "built-in"))
    assert all(map(np.array_equal, own.logprobs, expected.logprobs))
    total = expected.metrics["loss:sum"]
    assert own.metrics["loss:sum"] == total
    assert own.metrics["custom/gain:sum"] == -total
    assert own.metrics["custom/gain:mean"] == -total / 2


def test_a_loss_that_depends_on_nothing_has_no_gradient() -> None:
    engine = make.engine()
    engine.open("run", make.spec())
    constant = document(("torch.sum", [WEIGHTS]), loss="step0")
    (result,) = make.losses(engine, "run", custom(constant, 1))
    assert result.metrics["loss:sum"] == 12
    assert not any(tensor.any() for tensor in make.gradients(engine, "run").values())


def test_a_written_loss_that_is_no_number_ends_alone() -> None:
    engine = make.engine()
    for name in ("own", "neighbour"):
        engine.open(name, make.spec(name))
    broken = document(
        ("operator.truediv", [OWN, 0.0]), ("torch.sum", [{"ref": "step0"}]), loss="step1"
    )
    bad = engine.submit("own", custom(broken, 1))
    good = engine.submit("neighbour", make.learning(make.example(2)))
    make.drive(engine)
    error = bad.exception(timeout=0)
    assert isinstance(error, TuningRefused)
    assert error.reason == "non_finite_loss"
    assert good.result(timeout=0).metrics["loss:sum"] > 0
    assert make.gradients(engine, "own") == {}


def test_a_metric_that_is_no_number_is_left_out() -> None:
    engine = make.engine()
    engine.open("run", make.spec())
    text = document(
        ("torch.sum", [OWN]),
        ("operator.truediv", [{"ref": "step0"}, 0.0]),
        loss="step0",
        **{"broken:mean": "step1", "whole:sum": "step0"},
    )
    (result,) = make.losses(engine, "run", custom(text, 1))
    assert set(result.metrics) == {"loss:sum", "tokens:sum", "custom/whole:sum"}


def test_examples_of_every_length_are_judged() -> None:
    """One that fits vouches for those of its own shape alone."""
    engine = make.engine()
    engine.open("run", make.spec())
    fixed = document(
        ("operator.getitem", [OWN, {"slice": [0, 5, None]}]),
        ("operator.getitem", [WEIGHTS, {"slice": [-5, None, None]}]),
        ("operator.mul", [{"ref": "step0"}, {"ref": "step1"}]),
        ("torch.sum", [{"ref": "step2"}]),
        ("operator.getitem", [OWN, 6]),
        loss="step3",
    )
    long, short = make.example(1, 12), make.example(2, 6)
    fits = ComputeLoss(examples=(long, long), loss="custom", document=fixed)
    make.losses(engine, "run", fits)
    with pytest.raises(TuningRefused, match="example 1"):
        engine.submit("run", replace(fits, examples=(long, short)))


@pytest.mark.parametrize(
    ("reason", "operation"),
    [
        ("invalid_loss_graph", custom("", 1)),
        ("invalid_loss_graph", custom(document(("os.system", ["id"]), loss="step0"), 1)),
        ("invalid_loss_graph", custom(document(("torch.exp", [OWN]), loss="step0"), 1)),
        ("unknown_setting", replace(custom(CROSS_ENTROPY, 1), settings={"beta": 1.0})),
    ],
)
def test_a_bad_loss_is_refused_before_anything_runs(reason: str, operation: ComputeLoss) -> None:
    engine = make.engine()
    engine.open("run", make.spec())
    with pytest.raises(TuningRefused) as refused:
        engine.submit("run", operation)
    assert refused.value.reason == reason
    assert not engine.advance()
