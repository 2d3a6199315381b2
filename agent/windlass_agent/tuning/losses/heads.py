"""Log-probabilities of targets, without the logits of a whole sequence in memory."""

from functools import partial

import torch
from torch.utils.checkpoint import checkpoint

from windlass_agent.tuning.losses.formulas import target_logprobs
from windlass_agent.tuning.network.base import BaseNetwork
from windlass_agent.tuning.network.layout import Segment

# Rows at a time, and the numbers of logits from which on they are computed again for the gradient.
ROWS = 1024
KEPT = 1 << 24


def head_logprobs(
    base: BaseNetwork, hidden: torch.Tensor, segment: Segment, targets: torch.Tensor
) -> torch.Tensor:
    """Log-probabilities of targets by the hidden states of one sequence.

    Where a vocabulary is long, logits would take most of a pass's memory: those of a part are
    dropped and computed again. What is done depends on the sequence alone.
    """
    part = partial(_part, base, segment)
    if len(hidden) * base.vocabulary <= KEPT:
        return part(hidden, targets)
    found = [
        checkpoint(part, *rows, use_reentrant=False, preserve_rng_state=False)
        for rows in zip(hidden.split(ROWS), targets.split(ROWS), strict=True)
    ]
    return torch.cat(found)


def _part(
    base: BaseNetwork, segment: Segment, hidden: torch.Tensor, targets: torch.Tensor
) -> torch.Tensor:
    return target_logprobs(base.logits(hidden, segment), targets)
