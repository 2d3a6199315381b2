"""The losses against their formulas, written out for each token."""

import math

import numpy as np
import pytest
import torch

from windlass.tuning_api.losses.specs import SPECS
from windlass_agent.tuning.losses.formulas import FORMULAS, target_logprobs
from windlass_agent.tuning.losses.metrics import metrics
from windlass_agent.tuning.requests.operations import Example

OWN = [-1.0, -2.0, -0.5, -3.0]
SAMPLED = [-1.1, -1.0, -0.9, -3.0]
ADVANTAGES = [1.0, -2.0, 0.5, 0.0]
CLIPS = {"clip_low_threshold": 0.8, "clip_high_threshold": 1.2}


def evaluate(
    loss: str, settings: dict[str, float] | None = None, **extra: list[float]
) -> tuple[float, list[float]]:
    """The loss and its gradient by each log-probability."""
    own = torch.tensor(OWN, requires_grad=True)
    inputs = {"logprobs": SAMPLED, "advantages": ADVANTAGES, **extra}
    tensors = {name: torch.tensor(values) for name, values in inputs.items()}
    value = FORMULAS[loss](own, tensors, settings or {})
    (gradient,) = torch.autograd.grad(value, own)
    return float(value.detach()), gradient.tolist()


def ratios() -> list[float]:
    return [math.exp(own - sampled) for own, sampled in zip(OWN, SAMPLED, strict=True)]


def clip(value: float) -> float:
    return min(max(value, 0.8), 1.2)


def test_every_loss_has_a_formula_and_inputs() -> None:
    assert SPECS.keys() == FORMULAS.keys()


def test_cross_entropy() -> None:
    value, gradient = evaluate("cross_entropy", weights=[1.0, 0.0, 2.0, 0.5])
    assert value == pytest.approx(1.0 + 2 * 0.5 + 0.5 * 3.0)
    assert gradient == [-1.0, 0.0, -2.0, -0.5]


def test_importance_sampling() -> None:
    value, gradient = evaluate("importance_sampling")
    expected = [-ratio * advantage for ratio, advantage in zip(ratios(), ADVANTAGES, strict=True)]
    assert value == pytest.approx(sum(expected), rel=1e-5)
    assert gradient == pytest.approx(expected, rel=1e-5)


def test_ppo() -> None:
    value, gradient = evaluate("ppo", CLIPS)
    pairs = list(zip(ratios(), ADVANTAGES, strict=True))
    assert value == pytest.approx(-sum(min(r * a, clip(r) * a) for r, a in pairs), rel=1e-5)
    # Nothing pulls a token that is already beyond the clip on its good side.
    free = [r * a <= clip(r) * a for r, a in pairs]
    assert free == [True, False, False, True]
    expected = [-r * a if moves else 0.0 for (r, a), moves in zip(pairs, free, strict=True)]
    assert gradient == pytest.approx(expected, rel=1e-5)


def test_cispo() -> None:
    value, gradient = evaluate("cispo", CLIPS)
    held = [clip(ratio) * advantage for ratio, advantage in zip(ratios(), ADVANTAGES, strict=True)]
    assert value == pytest.approx(-sum(h * own for h, own in zip(held, OWN, strict=True)), rel=1e-5)
    assert gradient == pytest.approx([-one for one in held], rel=1e-5)


def test_stable_reinforce() -> None:
    """The ratio is held and cut off at its upper end alone."""
    value, gradient = evaluate("stable_reinforce", {"truncation": 1.05})
    held = [min(ratio, 1.05) * a for ratio, a in zip(ratios(), ADVANTAGES, strict=True)]
    assert value == pytest.approx(-sum(h * own for h, own in zip(held, OWN, strict=True)), rel=1e-5)
    assert gradient == pytest.approx([-one for one in held], rel=1e-5)


def test_dro() -> None:
    value, gradient = evaluate("dro", {"beta": 0.5})
    rows = list(zip(OWN, SAMPLED, ADVANTAGES, strict=True))
    expected = sum(own * a - 0.25 * (own - sampled) ** 2 for own, sampled, a in rows)
    assert value == pytest.approx(-expected, rel=1e-5)
    slopes = [-(a - 0.5 * (own - sampled)) for own, sampled, a in rows]
    assert gradient == pytest.approx(slopes, rel=1e-5)


@pytest.mark.parametrize("mask", [None, [1.0, 1.0, 1.0, 0.0], [1.0, 0.0, 1.0, 0.0]])
def test_gspo(mask: list[float] | None) -> None:
    """Without a mask, tokens without an advantage are the prompt's."""
    extra = {} if mask is None else {"sequence_ratio_mask": mask}
    within = [place for place in range(4) if (mask or [1, 1, 1, 0])[place]]
    mean = sum(OWN[place] - SAMPLED[place] for place in within) / len(within)
    ratio = math.exp(mean)
    value, gradient = evaluate("gspo", CLIPS, **extra)
    terms = {p: min(ratio * ADVANTAGES[p], clip(ratio) * ADVANTAGES[p]) for p in within}
    assert value == pytest.approx(-sum(terms.values()), rel=1e-5)
    slopes = [
        -ratio * ADVANTAGES[p]
        if p in within and ratio * ADVANTAGES[p] <= clip(ratio) * ADVANTAGES[p]
        else 0.0
        for p in range(4)
    ]
    assert gradient == pytest.approx(slopes, rel=1e-5)


@pytest.mark.parametrize("loss", sorted(set(FORMULAS) - {"cross_entropy"}))
def test_a_mask_leaves_tokens_out(loss: str) -> None:
    settings = {**CLIPS, "beta": 0.1, "truncation": 2.0}
    _, gradient = evaluate(loss, settings, mask=[0.0, 1.0, 0.0, 1.0])
    assert gradient[0] == gradient[2] == 0.0
    assert evaluate(loss, settings)[1] != gradient


def test_logprobs_of_one_and_of_several_targets() -> None:
    logits = torch.randn(3, 5, generator=torch.Generator().manual_seed(0))
    every = logits.log_softmax(-1)
    one = torch.tensor([1, 4, 0])
    several = torch.tensor([[1, 2], [4, 4], [0, 3]])
    assert torch.allclose(target_logprobs(logits, one), every[range(3), one])
    assert torch.allclose(target_logprobs(logits, several), every.gather(-1, several))


def policy(advantages: list[float]) -> Example:
    return Example(
        tokens=np.arange(4),
        inputs={
            "logprobs": np.array(SAMPLED, np.float32),
            "advantages": np.array(advantages, np.float32),
        },
    )


def test_metrics_are_of_the_tokens_that_were_sampled() -> None:
    own = np.array(OWN, np.float32)
    found = metrics([1.5, -0.25], [own, own], [policy(ADVANTAGES), policy(ADVANTAGES)], CLIPS)
    sampled = ratios()[:3]
    assert found["loss:sum"] == 1.25
    assert found["tokens:sum"] == 8
    assert found["ratio:mean"] == pytest.approx(sum(sampled) / 3, rel=1e-5)
    assert found["ratio:max"] == pytest.approx(max(sampled), rel=1e-5)
    assert found["clipped:mean"] == pytest.approx(2 / 3)
    drift = [OWN[place] - SAMPLED[place] for place in range(3)]
    assert found["kl_sampler:mean"] == pytest.approx(-sum(drift) / 3, rel=1e-4)


def test_a_metric_without_a_number_is_left_out() -> None:
    own = np.array(OWN, np.float32)
    found = metrics([0.0, math.inf], [own], [policy([0.0] * 4)], CLIPS)
    assert found == {"tokens:sum": 4.0}
