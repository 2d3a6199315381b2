"""Gradients of several passes as those of one step."""

from collections.abc import Mapping

import torch

from windlass_vllm.refusal import Refused

# Beside a norm of zero.
_SMALLEST = 1e-6


def add_gradients(
    found: dict[str, torch.Tensor], loss: torch.Tensor, weights: Mapping[str, torch.Tensor]
) -> None:
    """Adds the gradients of a loss, in float32; hooks of the weights do not run."""
    made = torch.autograd.grad(loss, list(weights.values()), allow_unused=True)
    for name, one in zip(weights, made, strict=True):
        if one is not None and name in found:
            found[name] += one
        elif one is not None:
            found[name] = one.float()


def clip(gradients: dict[str, torch.Tensor], norm: float) -> None:
    """Shrinks gradients whose norm, of all together, exceeds `norm`; 0 sets no bound.

    Raises Refused where the norm is no number.
    """
    if not norm or not gradients:
        return
    squares = torch.stack([one.square().sum() for one in gradients.values()])
    found = squares.sum().sqrt()
    if not found.isfinite():
        raise Refused("non_finite_gradient", "the norm of the gradients is no number")
    if found > norm:
        for one in gradients.values():
            one.mul_(norm / (found + _SMALLEST))
