"""Muon on both matrices of an adapter: momentum whose singular values are made equal."""

import torch

from windlass_agent.tuning.network.adapter import Tensors
from windlass_agent.tuning.requests.operations import StepOptimizer

MOMENTUM = "momentum"
# The quintic iteration of Muon, which drives singular values to about 1 in five steps.
_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
_ROUNDS = 5
# Makes the size of an update that of AdamW's, so that its learning rates fit.
_ADAM_RMS = 0.2
_SMALLEST = 1e-7


def dimuon(
    weights: Tensors, gradients: Tensors, moments: Tensors, _: int, settings: StepOptimizer
) -> tuple[Tensors, Tensors]:
    """Returns weights and momenta after a step; `beta1` is the momentum, `beta2` has no part."""
    new_weights: Tensors = {}
    new_moments: Tensors = {}
    for name, weight in weights.items():
        gradient = gradients[name]
        before = moments.get(f"{name}.{MOMENTUM}", torch.zeros_like(weight))
        momentum = before * settings.beta1 + gradient * (1 - settings.beta1)
        ahead = momentum * settings.beta1 + gradient * (1 - settings.beta1)
        rate = settings.learning_rate * _ADAM_RMS * max(weight.shape) ** 0.5
        kept = weight * (1 - settings.learning_rate * settings.weight_decay)
        new_weights[name] = kept - rate * orthogonal(ahead)
        new_moments[f"{name}.{MOMENTUM}"] = momentum
    return new_weights, new_moments


def orthogonal(matrix: torch.Tensor) -> torch.Tensor:
    """A matrix of the same singular vectors, all of whose singular values are about 1."""
    first, second, third = _COEFFICIENTS
    wide = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
    found = wide / wide.norm().clamp(min=_SMALLEST)
    for _ in range(_ROUNDS):
        gram = found @ found.T
        found = first * found + (second * gram + third * gram @ gram) @ found
    return found if wide is matrix else found.T
