"""Losses of an engine's plugin are those of the tuning service, which it may not import."""

from dataclasses import asdict

import pytest
import torch

from windlass.tuning_api.losses.specs import SPECS
from windlass_agent.tuning.losses import formulas as theirs
from windlass_vllm.losses import formulas as ours
from windlass_vllm.losses import specs

pytestmark = pytest.mark.torch

ROWS, VOCABULARY = 64, 96


def numbers(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def inputs_of(loss: str, targets: torch.Tensor, seed: int) -> dict[str, torch.Tensor]:
    """Ratios on both sides of every clip, advantages of both signs, and some of 0."""
    spec = SPECS[loss]
    found = {}
    for place, name in enumerate((*spec.needs, *spec.takes)):
        values = numbers(seed + place, *targets.shape)
        if "mask" in name:
            values = (values > -0.5).float()
        elif name == "logprobs":
            values = values * 0.5 - 4.6
        elif name == "advantages":
            values = values * (values.abs() > 0.3)
        found[name] = values
    return found


def test_both_know_the_same_losses_inputs_and_settings() -> None:
    found = {name: asdict(spec) for name, spec in specs.SPECS.items()}
    assert found == {name: asdict(spec) for name, spec in SPECS.items()}
    assert theirs.FORMULAS.keys() == found.keys()


CASES = [(loss, None, without) for loss, spec in SPECS.items() for without in ("", *spec.takes)]


@pytest.mark.parametrize(("loss", "several", "without"), [*CASES, ("cross_entropy", 3, "")])
def test_values_and_gradients_are_the_same_to_the_bit(
    loss: str, several: int | None, without: str
) -> None:
    shape = (ROWS, several) if several else (ROWS,)
    targets = torch.randint(0, VOCABULARY, shape, generator=torch.Generator().manual_seed(1))
    found = []
    for seed in range(5):
        inputs = inputs_of(loss, targets, seed)
        inputs.pop(without, None)
        settings = {name: value * (1 + seed / 20) for name, value in SPECS[loss].settings.items()}
        both = []
        for is_ours in (True, False):
            logits = numbers(seed + 9, ROWS, VOCABULARY).requires_grad_()
            if is_ours:
                logprobs = ours.target_logprobs(logits, targets)
                value = ours.sequence_loss(loss, logprobs, inputs, settings)
            else:
                logprobs = theirs.target_logprobs(logits, targets)
                value = theirs.FORMULAS[loss](logprobs, inputs, settings)
            both.append((value.detach(), *torch.autograd.grad(value, logits)))
        assert all(map(torch.equal, *both))
        found.append(both[0][1])
    assert all(one.any() for one in found)
