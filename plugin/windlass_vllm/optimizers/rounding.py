"""Subtraction of small updates from weights of few bits, so that none is lost."""

import torch

from windlass_vllm.optimizers.settings import Rounding

RESIDUAL = "residual"


def subtract(
    weight: torch.Tensor,
    update: torch.Tensor,
    rounding: Rounding,
    state: dict[str, torch.Tensor],
    seed: int,
) -> None:
    """Takes an update of float32 from a weight in place.

    `kahan` keeps what was rounded away in `state`; `stochastic` rounds up as often as what would
    be cut says, by noise from `seed`.
    """
    if weight.dtype == torch.float32:
        weight.sub_(update)
        return
    exact = weight.float()
    if rounding == "kahan" and RESIDUAL in state:
        exact += state[RESIDUAL].float()
    exact -= update
    if rounding == "stochastic" and weight.dtype == torch.bfloat16:
        weight.copy_(stochastic(exact, seed))
        return
    weight.copy_(exact)
    if rounding == "kahan":
        state[RESIDUAL] = (exact - weight.float()).to(weight.dtype)


def stochastic(exact: torch.Tensor, seed: int) -> torch.Tensor:
    """Returns numbers of bfloat16 whose mean over seeds is `exact`, which is float32."""
    generator = torch.Generator(device=exact.device).manual_seed(seed)
    bits = exact.contiguous().view(torch.int32)
    kind = {"generator": generator, "device": exact.device, "dtype": torch.int32}
    # What is cut is 16 bits; noise of as many carries into the kept ones in proportion.
    noise = torch.randint(0, 1 << 16, bits.shape, **kind)
    cut = bits.add(noise).bitwise_and_(-1 << 16).view(torch.float32)
    # A carry beyond the largest number would make it infinite, and a NaN a number.
    return torch.where(cut.isfinite() & exact.isfinite(), cut, exact).bfloat16()
