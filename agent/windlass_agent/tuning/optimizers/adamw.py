"""AdamW, with weight decay apart from the gradient."""

import torch

from windlass_agent.tuning.network.adapter import Tensors
from windlass_agent.tuning.requests.operations import StepOptimizer

MEAN, SQUARE = "mean", "square"


def adamw(
    weights: Tensors, gradients: Tensors, moments: Tensors, step: int, settings: StepOptimizer
) -> tuple[Tensors, Tensors]:
    """Returns the weights and the moments after the `step`-th step (the first is 1)."""
    names = list(weights)
    old, along = [weights[name] for name in names], [gradients[name] for name in names]
    zeros = [torch.zeros_like(one) for one in old]
    means, squares = (
        [moments.get(f"{name}.{part}", zero) for name, zero in zip(names, zeros, strict=True)]
        for part in (MEAN, SQUARE)
    )
    means = torch._foreach_mul(means, settings.beta1)
    torch._foreach_add_(means, along, alpha=1 - settings.beta1)
    squares = torch._foreach_mul(squares, settings.beta2)
    torch._foreach_addcmul_(squares, along, along, 1 - settings.beta2)
    roots = torch._foreach_sqrt(squares)
    torch._foreach_div_(roots, (1 - settings.beta2**step) ** 0.5)
    torch._foreach_add_(roots, settings.eps)
    new = torch._foreach_mul(old, 1 - settings.learning_rate * settings.weight_decay)
    rate = settings.learning_rate / (1 - settings.beta1**step)
    torch._foreach_addcdiv_(new, means, roots, -rate)
    made = {f"{name}.{MEAN}": one for name, one in zip(names, means, strict=True)}
    made |= {f"{name}.{SQUARE}": one for name, one in zip(names, squares, strict=True)}
    return dict(zip(names, new, strict=True)), made
