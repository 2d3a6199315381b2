"""One weight's update by each rule."""

from dataclasses import dataclass, field

import torch

from windlass_vllm.optimizers.projection import next_seed, projected
from windlass_vllm.optimizers.settings import OptimizerSettings

MEAN, SQUARE, NORM = "mean", "square", "norm"
_SMALLEST = 1e-8


@dataclass
class WeightState:
    """State of one weight: tensors, a seed, and the steps that it took."""

    seed: int
    low_rank: bool
    step: int = 0
    tensors: dict[str, torch.Tensor] = field(default_factory=dict)


def update_of(
    gradient: torch.Tensor, state: WeightState, settings: OptimizerSettings, rate: float
) -> torch.Tensor:
    """Returns what to take from the weight, in float32, and moves the state on by one step."""
    if settings.kind == "sgd":
        state.step += 1
        return gradient * rate
    if not state.low_rank:
        direction = _adam(gradient, state, settings)
        return direction * (rate * _correction(state.step, settings))
    if state.step and state.step % settings.renewal == 0:
        state.seed = next_seed(state.seed)
    small = projected(gradient, settings.rank, state.seed)
    direction = _adam(small, state, settings)
    # Moments say how much a channel should move; the gradient itself says where.
    scaled = _limited(gradient * _ratio(direction, small, gradient, settings), state, settings)
    return scaled * (settings.scale**0.5 * rate * _correction(state.step, settings))


def _adam(gradient: torch.Tensor, state: WeightState, settings: OptimizerSettings) -> torch.Tensor:
    for name in (MEAN, SQUARE):
        state.tensors.setdefault(name, torch.zeros_like(gradient))
    mean, square = state.tensors[MEAN], state.tensors[SQUARE]
    state.step += 1
    mean.mul_(settings.beta1).add_(gradient, alpha=1.0 - settings.beta1)
    square.mul_(settings.beta2).addcmul_(gradient, gradient, value=1.0 - settings.beta2)
    return mean / square.sqrt().add_(settings.eps)


def _correction(step: int, settings: OptimizerSettings) -> float:
    """The factor for moments that began at zero."""
    return float((1.0 - settings.beta2**step) ** 0.5 / (1.0 - settings.beta1**step))


def _ratio(
    direction: torch.Tensor,
    small: torch.Tensor,
    gradient: torch.Tensor,
    settings: OptimizerSettings,
) -> torch.Tensor:
    if settings.scaling == "tensor":
        return direction.norm() / (small.norm() + _SMALLEST)
    side = 0 if gradient.shape[0] < gradient.shape[1] else 1
    norms = (one.norm(dim=side, keepdim=True) for one in (direction, small))
    return next(norms) / (next(norms) + _SMALLEST)


def _limited(scaled: torch.Tensor, state: WeightState, settings: OptimizerSettings) -> torch.Tensor:
    """The update, shrunk where its norm grew by more than the settings allow."""
    norm, before = scaled.norm(), state.tensors.get(NORM)
    if not norm:
        # A step along zero says nothing of how long the next one may be.
        return scaled
    if before is not None:
        growth = norm / (before + _SMALLEST)
        excess = growth.clamp(min=settings.growth) / settings.growth
        scaled, norm = scaled / excess, norm / excess
    state.tensors[NORM] = norm
    return scaled
