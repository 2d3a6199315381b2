"""Steps of the optimizers beside torch's own."""

from dataclasses import replace

import pytest
import torch

from windlass_agent.tuning.optimizers.dimuon import orthogonal
from windlass_agent.tuning.optimizers.stepping import NextValues, take_step
from windlass_agent.tuning.requests.operations import OptimizerKind, StepOptimizer

SETTINGS = StepOptimizer(learning_rate=0.01, beta1=0.9, weight_decay=0.1)


def drawn(seed: int) -> dict[str, torch.Tensor]:
    draw = torch.Generator().manual_seed(seed)
    return {
        "down": torch.randn(4, 24, generator=draw),
        "up": torch.randn(32, 4, generator=draw),
    }


def step(
    kind: OptimizerKind, settings: StepOptimizer, *, scale: float = 1.0, last: int = 3
) -> NextValues:
    """The last of some steps from the same weights, each along gradients of its own."""
    made = NextValues(drawn(0), {}, 0.0)
    for number in range(1, last + 1):
        gradients = {name: scale * tensor for name, tensor in drawn(number).items()}
        made = take_step(kind, made.weights, gradients, made.moments, number, settings)
    return made


def of_torch(optimizer: torch.optim.Optimizer, weights: dict[str, torch.Tensor]) -> None:
    for number in range(1, 4):
        for name, tensor in drawn(number).items():
            weights[name].grad = tensor
        optimizer.step()


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_adamw_is_that_of_torch(decay: float) -> None:
    weights = {name: tensor.requires_grad_() for name, tensor in drawn(0).items()}
    settings = replace(SETTINGS, weight_decay=decay)
    optimizer = torch.optim.AdamW(
        weights.values(), lr=0.01, betas=(0.9, 0.95), eps=1e-12, weight_decay=decay
    )
    of_torch(optimizer, weights)
    for name, tensor in step("adamw", settings).weights.items():
        assert torch.allclose(tensor, weights[name].detach(), atol=1e-6)
        assert not torch.allclose(step("adamw", settings, last=2).weights[name], tensor, atol=1e-4)


def test_dimuon_is_torchs_muon() -> None:
    """As close as its iteration in bfloat16 allows."""
    weights = {name: tensor.requires_grad_() for name, tensor in drawn(0).items()}
    optimizer = torch.optim.Muon(
        weights.values(),
        lr=0.01,
        momentum=0.9,
        weight_decay=0.1,
        nesterov=True,
        adjust_lr_fn="match_rms_adamw",
    )
    of_torch(optimizer, weights)
    start = drawn(0)
    for name, tensor in step("dimuon", SETTINGS).weights.items():
        moved = weights[name].detach() - start[name]
        assert (tensor - start[name] - moved).norm() < 0.02 * moved.norm()


def test_orthogonal_makes_singular_values_equal() -> None:
    for name in ("down", "up"):
        values = torch.linalg.svdvals(orthogonal(drawn(1)[name]))
        assert 0.6 < float(values.min()) <= float(values.max()) < 1.3
    assert torch.linalg.svdvals(drawn(1)["up"]).max() > 2
    assert not orthogonal(torch.zeros(4, 8)).any()


def test_clipping_bounds_the_whole_gradient() -> None:
    """Muon's steps do not depend on the gradient's size, AdamW's hardly; its moments do."""
    free = step("adamw", SETTINGS, last=1)
    clipped = step("adamw", replace(SETTINGS, grad_clip_norm=1.0), last=1)
    assert clipped.norm == free.norm > 1
    means = [free.moments["up.mean"], clipped.moments["up.mean"] * free.norm]
    assert torch.allclose(*means, rtol=1e-4)
    wide = step("adamw", replace(SETTINGS, grad_clip_norm=1e6), last=1)
    assert torch.equal(wide.moments["up.mean"], free.moments["up.mean"])
