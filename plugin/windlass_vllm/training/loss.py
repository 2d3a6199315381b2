"""The loss of samples: of continuations alone, given what stands before them."""

from collections.abc import Sequence
from typing import Any

import torch

from windlass_vllm.messages import TokenSample


def continuation_loss(model: Any, samples: Sequence[TokenSample], device: str) -> torch.Tensor:
    """Returns the weighted mean of the negative log-likelihoods of all continuations' tokens."""
    logits, targets, shares = continuation_logits(model, samples, device)
    losses = torch.nn.functional.cross_entropy(logits.transpose(1, 2), targets, reduction="none")
    return (losses * shares).sum() / shares.sum()


def continuation_logits(
    model: Any, samples: Sequence[TokenSample], device: str
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Returns logits, the ids that follow, and their weights, which are 0 outside continuations."""
    ids = padded([(*one.context_ids, *one.continuation_ids) for one in samples], device)
    weights = torch.zeros(ids.shape, device=device)
    for row, one in zip(weights, samples, strict=True):
        first, last = len(one.context_ids), len(one.context_ids) + len(one.continuation_ids)
        row[first:last] = 1.0 if one.weights is None else torch.tensor(one.weights, device=device)
    # Logits of contexts would be the largest of all activations.
    kept = ids.shape[1] - min(len(one.context_ids) for one in samples) + 1
    logits = model(input_ids=ids, use_cache=False, logits_to_keep=kept).logits[:, :-1].float()
    return logits, ids[:, -kept + 1 :], weights[:, -kept + 1 :]


def padded(rows: Sequence[tuple[int, ...]], device: str) -> torch.Tensor:
    """Returns rows of ids, each as long as the longest."""
    longest = max(map(len, rows))
    # What stands on the right of a token is not seen by it, so that padding needs no mask.
    return torch.tensor([row + (0,) * (longest - len(row)) for row in rows], device=device)
