"""Settings of an optimizer, within bounds."""

import math
from typing import Literal

import msgspec

from windlass_vllm.refusal import Refused

Kind = Literal["adamw", "apollo", "sgd"]
Scaling = Literal["channel", "tensor"]
Rounding = Literal["stochastic", "kahan", "nearest"]
_MOST = 1e15


class OptimizerSettings(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Settings of APOLLO (arXiv 2412.05270), AdamW or SGD; raises Refused for what none takes."""

    kind: Kind = "apollo"
    learning_rate: float = 1e-5
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-6
    weight_decay: float = 0.0
    rounding: Rounding = "stochastic"
    """Applies to weights of less than 32 bits. `nearest` loses small updates."""
    seed: int = 0
    rank: int = 256
    scaling: Scaling = "channel"
    scale: float = 1.0
    renewal: int = 200
    """Steps of a weight for which one random projection is used."""
    growth: float = 1.01
    """Most by which the norm of an update may exceed that of the update before."""

    def __post_init__(self) -> None:
        numbers = (self.learning_rate, self.eps, self.weight_decay, self.scale, self.growth)
        betas = (self.beta1, self.beta2)
        if not all(math.isfinite(number) and 0 <= number <= _MOST for number in numbers):
            raise Refused("invalid_setting", f"a number of the settings is not in 0..{_MOST:g}")
        if not all(0 <= beta < 1 for beta in betas):
            raise Refused("invalid_setting", "beta1 and beta2 are from 0 up to 1")
        if min(self.rank, self.renewal) < 1 or self.growth < 1 or not 0 <= self.seed < 2**62:
            message = "rank, renewal and growth are 1 at least, the seed is from 0 up to 2**62"
            raise Refused("invalid_setting", message)


def apollo_mini(learning_rate: float, *, seed: int = 0) -> OptimizerSettings:
    """Returns the published settings of APOLLO-Mini: rank 1, one scale for each matrix."""
    return OptimizerSettings(
        learning_rate=learning_rate, rank=1, scaling="tensor", scale=128.0, seed=seed
    )
