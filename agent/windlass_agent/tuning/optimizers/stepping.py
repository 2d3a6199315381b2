"""One step of a run's optimizer."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from windlass_agent.tuning.network.adapter import Tensors, norm
from windlass_agent.tuning.optimizers.adamw import adamw
from windlass_agent.tuning.optimizers.dimuon import dimuon
from windlass_agent.tuning.requests.operations import OptimizerKind, StepOptimizer
from windlass_agent.tuning.requests.refusal import TuningRefused

Rule = Callable[[Tensors, Tensors, Tensors, int, StepOptimizer], tuple[Tensors, Tensors]]
# Products of two settings are numbers of fp32.
_MOST = 1e15
RULES: dict[OptimizerKind, Rule] = {"adamw": adamw, "dimuon": dimuon}


@dataclass(frozen=True)
class NextValues:
    """Weights and moments after a step, and the norm of the gradient before it was clipped."""

    weights: Tensors
    moments: Tensors
    norm: float


def check_step(settings: StepOptimizer) -> None:
    """Raises TuningRefused for a setting that no optimizer takes."""
    betas = (settings.beta1, settings.beta2)
    others = (settings.learning_rate, settings.eps, settings.weight_decay)
    if not all(math.isfinite(value) for value in (*betas, *others, settings.grad_clip_norm)):
        raise TuningRefused("invalid_setting", "a setting of the step is infinite or no number")
    if not all(0 <= beta < 1 for beta in betas) or not 0 <= min(others) <= max(others) <= _MOST:
        message = f"beta1 and beta2 are from 0 up to 1, the other settings from 0 to {_MOST:g}"
        raise TuningRefused("invalid_setting", message)


def take_step(
    kind: OptimizerKind,
    weights: Tensors,
    gradients: Tensors,
    moments: Tensors,
    step: int,
    settings: StepOptimizer,
) -> NextValues:
    """Returns what a step makes; raises TuningRefused, having changed nothing."""
    length = norm(gradients)
    if 0 < settings.grad_clip_norm < length:
        factor = settings.grad_clip_norm / length
        gradients = {name: tensor * factor for name, tensor in gradients.items()}
    new_weights, new_moments = RULES[kind](weights, gradients, moments, step, settings)
    if not math.isfinite(norm(new_weights) + norm(new_moments)):
        raise TuningRefused("non_finite_step", "the step would leave weights without a number")
    return NextValues(new_weights, new_moments, length)
