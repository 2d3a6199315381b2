"""Random projections that are known by a seed, so that none is kept."""

import torch

# apollo-torch takes the last of so many numbers as the next seed.
_ADVANCE = 15
_MIX = 0x9E3779B97F4A7C15


def projected(gradient: torch.Tensor, rank: int, seed: int) -> torch.Tensor:
    """Returns the gradient with its shorter side contracted to `rank` by entries of N(0, 1/rank).

    The longer side stays, so that moments have rank * max(m, n) numbers.
    """
    rows, columns = gradient.shape
    generator = torch.Generator(device=gradient.device).manual_seed(seed)
    shape = (rank, columns) if rows >= columns else (rows, rank)
    kind = {"generator": generator, "device": gradient.device, "dtype": gradient.dtype}
    matrix = torch.randn(shape, **kind) / rank**0.5
    return gradient @ matrix.t() if rows >= columns else matrix.t() @ gradient


def next_seed(seed: int) -> int:
    """Returns the seed of the projection after this one."""
    generator = torch.Generator().manual_seed(seed)
    most = torch.iinfo(torch.int64).max
    return int(torch.randint(0, most, (_ADVANCE,), generator=generator)[-1])


def noise_seed(seed: int, step: int) -> int:
    """Returns the seed of a step's rounding, apart from those of projections."""
    return ((seed + 1) * _MIX ^ (step * 0xBF58476D1CE4E5B9)) % 2**63
