"""The loss of a step, whichever form its examples have."""

from collections.abc import Iterator
from typing import Any

import torch

from windlass_vllm.messages import Train
from windlass_vllm.training.datum_loss import datum_loss
from windlass_vllm.training.loss import continuation_loss


def batches(examples: int, batch: int, epochs: int) -> Iterator[slice]:
    """Yields where the examples of each step are, in order, once for each epoch."""
    for _ in range(epochs):
        for first in range(0, examples, batch):
            yield slice(first, first + batch)


def step_loss(model: Any, job: Train, step: slice) -> tuple[torch.Tensor, int]:
    """Returns the loss of a step, and of how many tokens it is."""
    device = model.device.type
    if job.datums:
        datums = job.datums[step]
        loss = datum_loss(model, datums, job.loss, job.settings, device)
        return loss, sum(one.length for one in datums)
    samples = job.samples[step]
    tokens = sum(len(one.continuation_ids) for one in samples)
    return continuation_loss(model, samples, device), tokens
