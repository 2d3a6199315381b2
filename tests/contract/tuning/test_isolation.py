"""What a run's results depend on: its own operations and seed, and nothing of its neighbours."""

import numpy as np
import pytest
import torch
from tests.support.factories import tuning_engines as make

from windlass_agent.tuning.network.layout import Segment
from windlass_agent.tuning.requests.limits import TuningLimits
from windlass_agent.tuning.requests.operations import LossResult

SENSITIVE = 1e-6
NEIGHBOURS = [(1, 5), (8, 31), (64, 17)]


def trained(
    *, exclusive: bool, neighbours: bool = False, rank: int = 4, limits: TuningLimits | None = None
) -> tuple[list[LossResult], dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """Results, gradients and weights of a run of two steps, alone or among others."""
    engine = make.engine(limits)
    engine.open("run", make.spec("mine", rank=rank, exclusive=exclusive))
    others = []
    for place, (other, length) in enumerate(NEIGHBOURS if neighbours else ()):
        engine.open(f"other{place}", make.spec(f"theirs{place}", rank=other, seed=place))
        for draw in range(3):
            others.append(
                engine.submit(f"other{place}", make.learning(make.example(50 + draw, length)))
            )
            others.append(engine.submit(f"other{place}", make.STEP))
    own = [
        engine.submit("run", make.learning(make.example(1, 9), make.example(2, 14))),
        engine.submit("run", make.STEP),
        engine.submit("run", make.learning(make.example(3, 11))),
    ]
    results = make.finished(engine, own)
    make.finished(engine, others)
    return [results[0], results[2]], make.gradients(engine, "run"), make.weights(engine, "run")


def equal_losses(one: list[LossResult], other: list[LossResult]) -> bool:
    pairs = [
        (mine, theirs)
        for left, right in zip(one, other, strict=True)
        for mine, theirs in zip(left.logprobs, right.logprobs, strict=True)
    ]
    return all(np.array_equal(mine, theirs) for mine, theirs in pairs)


@pytest.mark.parametrize("rank", [1, 4, 64])
def test_an_exclusive_run_has_the_bits_that_it_has_alone(rank: int) -> None:
    alone = trained(exclusive=True, rank=rank)
    among = trained(exclusive=True, neighbours=True, rank=rank)
    assert equal_losses(alone[0], among[0])
    assert [result.metrics for result in alone[0]] == [result.metrics for result in among[0]]
    assert make.same_bits(alone[1], among[1])
    assert make.same_bits(alone[2], among[2])


@pytest.mark.parametrize("rank", [1, 4, 64])
def test_a_batched_run_has_the_losses_that_it_has_alone(rank: int) -> None:
    """Losses to the bit for the same weights; what sums of another shape change is tiny."""
    alone = trained(exclusive=False, rank=rank)
    among = trained(exclusive=False, neighbours=True, rank=rank)
    assert equal_losses(alone[0][:1], among[0][:1])
    assert make.difference(alone[1], among[1]) < SENSITIVE
    assert make.difference(alone[2], among[2]) < SENSITIVE


def test_another_run_would_be_seen() -> None:
    """The comparisons above tell one rank from another, and one sequence from another."""
    one, other = trained(exclusive=True), trained(exclusive=True, rank=5)
    assert not equal_losses(one[0][1:], other[0][1:])


@pytest.mark.parametrize("exclusive", [True, False])
def test_how_a_batch_is_split_changes_nothing(exclusive: bool) -> None:
    def gradients(*chunks: tuple[int, ...], budget: int = 16_384) -> dict[str, torch.Tensor]:
        engine = make.engine(TuningLimits(pass_tokens=budget))
        engine.open("run", make.spec(exclusive=exclusive))
        make.losses(
            engine,
            "run",
            *(make.learning(*(make.example(draw, 5 + draw) for draw in chunk)) for chunk in chunks),
        )
        return make.gradients(engine, "run")

    whole = gradients((1, 2, 3, 4))
    parts = [gradients((1,), (2, 3), (4,)), gradients((1, 2), (3, 4), budget=16)]
    for part in parts:
        assert make.difference(whole, part) < SENSITIVE
        assert make.same_bits(whole, part) or not exclusive
    assert make.difference(whole, gradients((1, 2, 3))) > SENSITIVE


def test_the_order_of_rows_changes_no_loss() -> None:
    engine = make.engine()
    engine.open("one", make.spec())
    engine.open("other", make.spec())
    draws = (1, 2, 3, 4)
    (ahead,) = make.losses(engine, "one", make.learning(*(make.example(d, 4 + d) for d in draws)))
    (back,) = make.losses(
        engine, "other", make.learning(*(make.example(d, 4 + d) for d in reversed(draws)))
    )
    assert all(
        np.array_equal(one, other)
        for one, other in zip(ahead.logprobs, reversed(back.logprobs), strict=True)
    )
    assert ahead.metrics == back.metrics
    assert make.difference(make.gradients(engine, "one"), make.gradients(engine, "other")) < 1e-6
    assert not np.array_equal(ahead.logprobs[0], back.logprobs[0])


def test_logits_that_are_computed_again_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """As those of long vocabularies and sequences are, a part of the rows at a time."""

    def learned() -> tuple[LossResult, dict[str, torch.Tensor], int]:
        engine = make.engine()
        engine.open("run", make.spec())
        make.losses(engine, "run", make.learning(make.example(2)))
        make.stepped(engine, "run")
        asked: list[int] = []
        real = engine._base.logits

        def counted(hidden: torch.Tensor, segment: Segment | None) -> torch.Tensor:
            asked.append(len(hidden))
            return real(hidden, segment)

        monkeypatch.setattr(engine._base, "logits", counted)
        (result,) = make.losses(engine, "run", make.learning(make.example(1, 20)))
        return result, make.gradients(engine, "run"), len(asked)

    whole, expected, once = learned()
    monkeypatch.setattr("windlass_agent.tuning.losses.heads.KEPT", 100)
    monkeypatch.setattr("windlass_agent.tuning.losses.heads.ROWS", 8)
    parts, found, again = learned()
    assert (once, again) == (1, 6)
    assert np.allclose(whole.logprobs[0], parts.logprobs[0], atol=1e-5)
    assert make.difference(expected, found) < 1e-5


def test_a_seed_is_used() -> None:
    def first(seed: int) -> dict[str, torch.Tensor]:
        engine = make.engine()
        engine.open("run", make.spec(seed=seed))
        return make.weights(engine, "run")

    assert make.same_bits(first(1), first(1))
    assert not make.same_bits(first(1), first(2))
    assert not make.same_bits(first(0), first(2))


def test_a_seed_gives_each_layer_other_values_whatever_the_targets() -> None:
    engine = make.engine()
    engine.open("all", make.spec())
    engine.open("some", make.spec(targets=frozenset(("mlp",))))
    every, some = make.weights(engine, "all"), make.weights(engine, "some")
    assert set(some) < set(every)
    assert all(torch.equal(every[name], tensor) for name, tensor in some.items())
    firsts = [tensor for name, tensor in every.items() if name.endswith("q_proj.lora_A")]
    assert not torch.equal(*firsts)
