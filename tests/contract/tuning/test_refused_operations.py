"""Bad operations are refused before anything runs, and bad numbers leave a run as it was."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from tests.support.factories import tuning_engines as make

from windlass_agent.tuning.endings import RunClosed
from windlass_agent.tuning.engine import TuningEngine
from windlass_agent.tuning.requests.limits import TuningLimits
from windlass_agent.tuning.requests.operations import ComputeLoss, Example, StepOptimizer
from windlass_agent.tuning.requests.refusal import TuningRefused

LIMITS = TuningLimits(rank=16, examples=4, queued_operations=2, runs=2, targets=3)
Change = Callable[[Example], Example]


def put(name: str, value: Any) -> Change:
    return lambda one: replace(one, inputs={**one.inputs, name: value})


def tokens(value: Any) -> Change:
    return lambda one: replace(one, tokens=value)


def without(name: str) -> Change:
    return lambda one: replace(
        one, inputs={key: value for key, value in one.inputs.items() if key != name}
    )


def floats(*values: float) -> Any:
    return np.resize(np.array(values, np.float32), 12)


BAD: dict[str, tuple[str, Change]] = {
    "tokens of another type": ("wrong_dtype", tokens(np.ones(12, np.float32))),
    "tokens in rows": ("wrong_dtype", tokens(np.ones((3, 4), np.int64))),
    "no tokens": ("empty_sequence", tokens(np.ones(0, np.int64))),
    "beyond the context": ("too_long", tokens(np.ones(make.CONTEXT + 1, np.int64))),
    "a token too high": ("unknown_token", tokens(np.full(12, make.VOCABULARY, np.int64))),
    "a token below zero": ("unknown_token", tokens(np.full(12, -100, np.int64))),
    "no targets": ("missing_input", without("target_tokens")),
    "no weights": ("missing_input", without("weights")),
    "an input of another loss": ("unknown_input", put("advantages", floats(1))),
    "weights of another type": ("wrong_dtype", put("weights", np.ones(12, np.float64))),
    "targets of another type": ("wrong_dtype", put("target_tokens", np.ones(12, np.int32))),
    "weights too short": ("wrong_shape", put("weights", np.ones(11, np.float32))),
    "targets too many": ("wrong_shape", put("target_tokens", np.ones((12, 4), np.int64))),
    "targets too deep": ("wrong_shape", put("target_tokens", np.ones((12, 2, 2), np.int64))),
    "targets too long": ("wrong_shape", put("target_tokens", np.ones(13, np.int64))),
    "a target too high": ("unknown_token", put("target_tokens", np.full(12, 2**40))),
    "a weight that is no number": ("non_finite_input", put("weights", floats(1, math.nan))),
    "an infinite weight": ("non_finite_input", put("weights", floats(math.inf))),
}


def engine(**spec: Any) -> TuningEngine:
    made = make.engine(LIMITS)
    made.open("run", make.spec(**spec))
    return made


@pytest.mark.parametrize(("reason", "change"), BAD.values(), ids=BAD.keys())
def test_a_bad_example_is_refused(reason: str, change: Change) -> None:
    trained = engine()
    with pytest.raises(TuningRefused) as refused:
        trained.submit("run", make.learning(make.example(1), change(make.example(2))))
    assert refused.value.reason == reason
    assert "example 1" in refused.value.message
    assert not trained.advance()


@pytest.mark.parametrize(
    ("reason", "operation"),
    [
        ("unknown_loss", make.learning(make.example(1), loss="__class__")),
        ("no_examples", make.learning()),
        ("too_many_examples", make.learning(*(make.example(draw) for draw in range(5)))),
        ("unknown_setting", make.learning(make.example(1), beta=1.0)),
        ("invalid_setting", make.learning(make.policy_example(1), loss="dro", beta=math.nan)),
        (
            "invalid_setting",
            make.learning(make.policy_example(1), loss="ppo", clip_low_threshold=2.0),
        ),
        ("invalid_setting", StepOptimizer(learning_rate=math.inf)),
        ("invalid_setting", StepOptimizer(beta1=1.0)),
        ("invalid_setting", StepOptimizer(eps=1e39)),
        ("invalid_setting", StepOptimizer(weight_decay=-0.1)),
    ],
)
def test_a_bad_operation_is_refused(reason: str, operation: Any) -> None:
    with pytest.raises(TuningRefused) as refused:
        engine().submit("run", operation)
    assert refused.value.reason == reason


@pytest.mark.parametrize(
    ("reason", "spec"),
    [
        ("rank_out_of_bounds", make.spec(rank=17)),
        ("rank_out_of_bounds", make.spec(rank=0)),
        ("no_targets", make.spec(targets=frozenset())),
        ("no_targets", make.spec(targets=frozenset(("embedding",)))),
        ("invalid_setting", make.spec(alpha=math.nan)),
        ("invalid_setting", make.spec(seed=2**63)),
        ("run_exists", make.spec()),
    ],
)
def test_a_bad_run_is_refused(reason: str, spec: Any) -> None:
    trained = engine()
    with pytest.raises(TuningRefused) as refused:
        trained.open("run" if reason == "run_exists" else "new", spec)
    assert refused.value.reason == reason


def test_runs_and_queues_are_bounded() -> None:
    trained = engine()
    trained.open("second", make.spec())
    with pytest.raises(TuningRefused, match="2 runs"):
        trained.open("third", make.spec())
    for _ in range(2):
        trained.submit("run", make.STEP)
    with pytest.raises(TuningRefused, match="2 operations"):
        trained.submit("run", make.STEP)
    with pytest.raises(RunClosed, match="no such run"):
        trained.submit("third", make.STEP)


def overflowing(draw: int) -> Example:
    """What the sampler gave no chance at all, so that the ratio is infinite."""
    one = make.policy_example(draw)
    return replace(one, inputs={**one.inputs, "logprobs": np.full(12, -1e6, np.float32)})


def test_an_infinite_loss_ends_its_operation_and_leaves_no_trace() -> None:
    trained = engine()
    trained.open("other", make.spec("other"))
    make.losses(trained, "run", make.learning(make.example(1)))
    before = make.gradients(trained, "run")
    bad = trained.submit(
        "run",
        make.learning(make.policy_example(2), overflowing(3), loss="importance_sampling"),
    )
    neighbour = trained.submit("other", make.learning(make.example(4)))
    make.drive(trained)
    with pytest.raises(TuningRefused) as refused:
        bad.result(timeout=0)
    assert refused.value.reason == "non_finite_loss"
    assert make.same_bits(before, make.gradients(trained, "run"))
    assert math.isfinite(neighbour.result(timeout=0).metrics["loss:sum"])
    # The run goes on as one that never tried.
    make.losses(trained, "run", make.learning(make.example(5)))
    undisturbed = engine()
    make.losses(undisturbed, "run", make.learning(make.example(1)), make.learning(make.example(5)))
    assert (
        make.difference(make.gradients(undisturbed, "run"), make.gradients(trained, "run")) < 1e-6
    )


def test_what_passes_computed_of_an_operation_that_fails_later_is_dropped() -> None:
    trained = make.engine(TuningLimits(pass_tokens=12))
    trained.open("run", make.spec())
    bad = trained.submit(
        "run",
        make.learning(make.policy_example(2), overflowing(3), loss="importance_sampling"),
    )
    assert trained.advance()
    assert not bad.done()
    make.drive(trained)
    assert isinstance(bad.exception(timeout=0), TuningRefused)
    assert make.gradients(trained, "run") == {}


def test_a_step_that_would_leave_no_numbers_is_not_taken() -> None:
    trained = engine()
    make.losses(trained, "run", make.learning(make.example(1)))
    before = make.weights(trained, "run")
    step = trained.submit("run", StepOptimizer(learning_rate=1e15, weight_decay=1e15))
    make.drive(trained)
    error = step.exception(timeout=0)
    assert isinstance(error, TuningRefused)
    assert error.reason == "non_finite_step"
    assert make.same_bits(before, make.weights(trained, "run"))
    assert make.gradients(trained, "run")


@pytest.mark.parametrize("exclusive", [True, False])
def test_forward_only_leaves_no_gradient(exclusive: bool) -> None:
    trained = engine(exclusive=exclusive)
    forward = ComputeLoss(examples=(make.example(1),), loss="cross_entropy", learns=False)
    (only,) = make.losses(trained, "run", forward)
    assert make.gradients(trained, "run") == {}
    untouched = make.weights(trained, "run")
    assert make.stepped(trained, "run").step == 1
    assert make.same_bits(untouched, make.weights(trained, "run"))
    (learned,) = make.losses(trained, "run", replace(forward, learns=True))
    assert np.array_equal(only.logprobs[0], learned.logprobs[0])
    before = make.gradients(trained, "run")
    make.losses(trained, "run", forward)
    assert make.same_bits(before, make.gradients(trained, "run"))


def test_a_pass_that_fails_takes_down_only_whose_fault_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trained = engine()
    trained.open("other", make.spec("other"))
    poison = make.example(9, 13)
    network = trained._base.network.base_model
    real = network.forward

    def forward(**inputs: Any) -> Any:
        ids = inputs["input_ids"][0].tolist()
        if poison.tokens.tolist() == ids[: len(poison.tokens)] or set(poison.tokens) <= set(ids):
            raise torch.OutOfMemoryError
        return real(**inputs)

    monkeypatch.setattr(network, "forward", forward)
    bad = trained.submit("run", make.learning(poison))
    good = trained.submit("other", make.learning(make.example(1, 3)))
    make.drive(trained)
    error = bad.exception(timeout=0)
    assert isinstance(error, TuningRefused)
    assert error.reason == "out_of_memory"
    assert good.result(timeout=0).metrics["tokens:sum"] == 3
