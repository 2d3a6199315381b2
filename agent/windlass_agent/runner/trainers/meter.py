"""The speed of a training and what it takes of its devices, measured in its own process."""

import resource
import sys
import time
from typing import Any

import torch

from windlass_agent.runner.trainers.utilization import flops_per_token, peak_flops

# What Linux counts in; macOS counts bytes.
_RSS_UNIT = 1 if sys.platform == "darwin" else 1024


class StepMeter:
    """Counts the seconds of steps and, in `measure`, says what was reached in them."""

    def __init__(self) -> None:
        self._seconds = 0.0
        self._step_began = 0.0
        self._tokens = 0
        self._flops_per_token = 0
        self._peak = 0.0

    def begin(self, model: Any, *, devices: int, tokens: int) -> None:
        """Looks at the model that will be trained and its devices; `tokens` are counted so far."""
        self._tokens = tokens
        self._flops_per_token = flops_per_token(*_weights(model))
        if torch.cuda.is_available():
            torch.cuda.reset_peak_memory_stats()
            self._peak = devices * (peak_flops(torch.cuda.get_device_name()) or 0.0)

    def step_began(self) -> None:
        """Starts the clock of a step."""
        self._step_began = time.monotonic()

    def step_ended(self) -> None:
        """Stops the clock of a step."""
        self._seconds += time.monotonic() - self._step_began

    def measure(self, tokens: int) -> dict[str, float]:
        """The rates since the call before; `tokens` are all that are counted by now.

        `tokens_per_second` is of all devices together. `mfu` is left out where the peak of the
        accelerator is not known, such as on a CPU.
        """
        seconds, self._seconds = self._seconds, 0.0
        fresh, self._tokens = tokens - self._tokens, tokens
        values = {"peak_memory_bytes": float(_peak_memory())}
        if seconds and fresh > 0:
            values["tokens_per_second"] = fresh / seconds
            if self._peak:
                values["mfu"] = fresh * self._flops_per_token / seconds / self._peak
        return values


def _weights(model: Any) -> tuple[int, int]:
    """The weights that a model multiplies by, and how many of them are trained."""
    if hasattr(model, "get_nb_trainable_parameters"):
        trained, total = model.get_nb_trainable_parameters()
    else:
        total = model.num_parameters()
        trained = model.num_parameters(only_trainable=True)
    embeddings = model.get_input_embeddings()
    looked_up = 0 if embeddings is None else embeddings.weight.numel()
    # A tied embedding is the output's matrix as well, which multiplies.
    if getattr(model.config, "tie_word_embeddings", False):
        return total, trained
    return total - looked_up, min(trained, total - looked_up)


def _peak_memory() -> int:
    """Bytes at most, so far: allocated of this process' device, or resident without one."""
    if torch.cuda.is_available():
        return int(torch.cuda.max_memory_allocated())
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _RSS_UNIT
