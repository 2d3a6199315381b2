"""Number of CPU threads for a training."""

from pathlib import Path

import torch

_SMALL_BYTES = 80 * 2**20


def spare_threads(model: Path) -> None:
    """Gives a model of a few million parameters one thread.

    Its steps take a millisecond; threads that spin for a sibling without a free
    core make them take hundreds, and on free cores they gain nothing.
    """
    if sum(path.stat().st_size for path in model.glob("*.safetensors")) < _SMALL_BYTES:
        torch.set_num_threads(1)
