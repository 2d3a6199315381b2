"""Steps within the backward pass: gradients that do not pile up, updates that are not lost."""

import weakref

import pytest
import torch
from torch import nn

from windlass_vllm.optimizers.in_backward import InBackwardOptimizer
from windlass_vllm.optimizers.rounding import RESIDUAL, stochastic
from windlass_vllm.optimizers.settings import Kind, OptimizerSettings, Rounding
from windlass_vllm.refusal import Refused

LAYERS = 12


def deep() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Linear(16, 16, bias=False) for _ in range(LAYERS)))


@pytest.mark.parametrize("kind", ["adamw", "apollo", "sgd"])
def test_one_gradient_lives_at_a_time(kind: Kind) -> None:
    model = deep()
    living = Living(model)
    settings = OptimizerSettings(kind=kind, rank=2, learning_rate=0.1)
    optimizer = InBackwardOptimizer(model.named_parameters(), settings)
    before = [weight.clone() for weight in model.parameters()]
    optimizer.backward(model(torch.ones(2, 16)).square().sum())
    assert (living.seen, living.most) == (LAYERS, 1)
    assert all(weight.grad is None for weight in model.parameters())
    pairs = zip(before, model.parameters(), strict=True)
    assert not any(torch.equal(old, new) for old, new in pairs)


@pytest.mark.parametrize("kind", ["adamw", "apollo", "sgd"])
def test_gradients_that_were_made_before_step_alike(kind: Kind) -> None:
    settings = OptimizerSettings(kind=kind, rank=2, learning_rate=0.1)
    found = []
    for is_apart in (False, True):
        model = deep()
        optimizer = InBackwardOptimizer(model.named_parameters(), settings)
        for _ in range(3):
            loss = model(torch.ones(2, 16)).square().sum()
            if is_apart:
                made = torch.autograd.grad(loss, list(optimizer.weights.values()))
                changed = optimizer.stepped(dict(zip(optimizer.weights, made, strict=True)))
                for name, one in changed.items():
                    optimizer.weights[name].data.copy_(one)
            else:
                optimizer.backward(loss)
        found.append(torch.cat([one.detach().flatten() for one in model.parameters()]))
    assert torch.equal(*found)


def test_gradients_that_are_not_finite_move_nothing() -> None:
    model = deep()
    optimizer = InBackwardOptimizer(model.named_parameters(), OptimizerSettings(kind="sgd"))
    before = [one.clone() for one in model.parameters()]
    gradients = {name: torch.ones_like(one) for name, one in optimizer.weights.items()}
    gradients[list(gradients)[-1]][0, 0] = torch.nan
    with pytest.raises(Refused):
        optimizer.stepped(gradients)
    assert all(map(torch.equal, before, model.parameters()))


def test_without_the_optimizer_all_gradients_live() -> None:
    """The count of the test above can be wrong."""
    model = deep()
    living = Living(model)
    model(torch.ones(2, 16)).square().sum().backward()
    assert living.most == LAYERS


class Living:
    """Counts the gradients of weights that live at once."""

    def __init__(self, model: nn.Module) -> None:
        self.seen = self.most = 0
        self._found: list[weakref.ref[torch.Tensor]] = []
        for weight in model.parameters():
            weight.register_post_accumulate_grad_hook(self._count)

    def _count(self, weight: torch.Tensor) -> None:
        assert weight.grad is not None
        self.seen += 1
        self._found.append(weakref.ref(weight.grad))
        self.most = max(self.most, sum(one() is not None for one in self._found))


def test_a_weight_that_is_used_twice_moves_once() -> None:
    model = nn.Linear(4, 4, bias=False)
    settings = OptimizerSettings(kind="sgd", learning_rate=0.5)
    optimizer = InBackwardOptimizer(model.named_parameters(), settings)
    expected = model.weight.detach().clone()
    other = nn.Linear(4, 4, bias=False)
    other.load_state_dict(model.state_dict())
    for one in (other, model):
        loss = one(one(torch.ones(4))).sum()
        loss.backward() if one is other else optimizer.backward(loss)
    assert other.weight.grad is not None
    torch.testing.assert_close(model.weight.detach(), expected - 0.5 * other.weight.grad)
    assert optimizer.states["weight"].step == 1


def test_adamw_is_that_of_torch() -> None:
    ours, theirs = deep(), deep()
    settings = OptimizerSettings(kind="adamw", learning_rate=1e-2, eps=1e-12, weight_decay=0.0)
    optimizer = InBackwardOptimizer(ours.named_parameters(), settings)
    reference = torch.optim.AdamW(theirs.parameters(), lr=1e-2, eps=1e-12, weight_decay=0.0)
    for step in range(30):
        data = torch.randn(4, 16, generator=torch.Generator().manual_seed(step))
        optimizer.backward(ours(data).square().sum())
        theirs(data).square().sum().backward()
        reference.step()
        reference.zero_grad()
        for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
            torch.testing.assert_close(one, other, rtol=2e-4, atol=2e-5)


def learned(rounding: Rounding) -> float:
    """The loss after steps that are each below half of a weight's last bit."""
    weight = nn.Parameter(torch.ones(256, dtype=torch.bfloat16))
    settings = OptimizerSettings(kind="sgd", learning_rate=1e-3, rounding=rounding)
    optimizer = InBackwardOptimizer([("weight", weight)], settings)
    for _ in range(400):
        # A gradient of 1: the step is 0.001, and the next number below 1 is 0.0039 away.
        optimizer.backward(weight.float().sum())
    return float(weight.detach().float().mean())


def test_updates_below_a_weights_last_bit_are_not_lost() -> None:
    assert learned("nearest") == 1.0, "plain rounding learns nothing, so that the rest can fail"
    assert learned("stochastic") == pytest.approx(0.6, abs=0.02)
    assert learned("kahan") == pytest.approx(0.6, abs=0.005)


def test_stochastic_rounding_goes_to_a_neighbour_and_is_right_on_average() -> None:
    exact = torch.full((200_000,), 1.0 + 2**-7 * 0.3)
    rounded = stochastic(exact, 3).float()
    assert set(rounded.unique().tolist()) == {1.0, 1.0 + 2**-7}
    assert float(rounded.mean()) == pytest.approx(float(exact[0]), abs=2e-5)
    assert torch.equal(stochastic(-exact, 3).float(), -rounded)


def test_stochastic_rounding_makes_no_number_infinite_and_no_nan_a_number() -> None:
    largest = torch.finfo(torch.bfloat16).max
    odd = torch.tensor([largest, -largest, float("inf"), float("nan"), 0.0]).repeat(100)
    for seed in range(5):
        found = stochastic(odd, seed).float().reshape(-1, 5)
        assert (found[:, 0] == largest).all()
        assert found[:, 2].isinf().all()
        assert found[:, 3].isnan().all()
        assert (found[:, 4] == 0).all()


def test_kahan_keeps_what_was_rounded_away() -> None:
    weight = nn.Parameter(torch.ones(4, dtype=torch.bfloat16))
    settings = OptimizerSettings(kind="sgd", learning_rate=1e-3, rounding="kahan")
    optimizer = InBackwardOptimizer([("weight", weight)], settings)
    optimizer.backward(weight.float().sum())
    kept = optimizer.states["weight"].tensors[RESIDUAL]
    assert kept.dtype == torch.bfloat16
    assert float(kept[0]) == pytest.approx(-1e-3, rel=1e-2)


def test_a_gradient_without_a_number_leaves_its_weight_alone() -> None:
    model = nn.Linear(2, 2)
    optimizer = InBackwardOptimizer(model.named_parameters(), OptimizerSettings(kind="adamw"))
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    with pytest.raises(Refused, match="has no finite numbers") as refused:
        optimizer.backward(model(torch.full((2,), float("inf"))).sum() * 0)
    assert refused.value.reason == "non_finite_gradient"
    assert torch.equal(model.weight, before["weight"])


def test_a_type_that_no_rounding_knows_is_refused() -> None:
    weight = nn.Parameter(torch.ones(4, dtype=torch.float16))
    with pytest.raises(Refused) as refused:
        InBackwardOptimizer([("weight", weight)], OptimizerSettings())
    assert refused.value.reason == "invalid_setting"


def test_a_closed_optimizer_applies_nothing() -> None:
    model = deep()
    optimizer = InBackwardOptimizer(model.named_parameters(), OptimizerSettings(kind="sgd"))
    optimizer.close()
    model(torch.ones(2, 16)).sum().backward()
    assert all(weight.grad is not None for weight in model.parameters())
