"""Detection of diverged trainings, whose checkpoints are not worth keeping."""

import math
from collections.abc import Mapping

from windlass_agent.runner.protocol.outcome import Failure

_ADVICE = "A lower learning rate multiplier may help."


def divergence(
    numbers: Mapping[str, float], *, step: int, scales_loss: bool = False
) -> Failure | None:
    """The failure of a step whose `loss` or `grad_norm` is not finite; None while both are.

    Gradients that are not finite leave weights that are none, unless the trainer scales its loss
    (`scales_loss`, in float16) and leaves such a step out.
    """
    if not math.isfinite(numbers.get("loss", 0.0)):
        said = f"The loss is no longer a number at step {step}. {_ADVICE}"
        return Failure("loss_not_finite", said, param="hyperparameters")
    if not scales_loss and not math.isfinite(numbers.get("grad_norm", 0.0)):
        said = f"The gradients are no longer numbers at step {step}. {_ADVICE}"
        return Failure("gradient_not_finite", said, param="hyperparameters")
    return None
