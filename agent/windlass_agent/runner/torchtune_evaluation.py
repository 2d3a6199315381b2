"""What a model is worth on rows that it does not learn from, between TorchTune's epochs."""

from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import distributed
from torchtune import utils
from torchtune.data import padded_collate_sft

from windlass_agent.runner.torchtune_parts import TokenRows


@torch.no_grad()
def evaluate(recipe: Any, held_out: Path) -> float:
    """Returns the mean loss over the tokens of a file that are learned; the processes share it."""
    ignored = recipe._loss_fn.ignore_index
    rows, size = TokenRows(recipe._tokenizer, source=str(held_out)), recipe._dataloader.batch_size
    collate = partial(padded_collate_sft, padding_idx=recipe._tokenizer.pad_id, ignore_idx=ignored)
    world, rank = utils.get_world_size_and_rank()
    totals = torch.zeros(2, dtype=torch.float64, device=recipe._device)
    recipe._model.eval()
    for first in range(0, len(rows), size * world):
        own = range(first + rank * size, len(rows))[:size]
        # Who has none left goes along, since each holds a part of the weights.
        batch = collate([rows[index] for index in own or range(1)])
        utils.batch_to_device(batch, recipe._device)
        count = (batch["labels"] != ignored).sum()
        loss = _loss(recipe, batch)
        if own:
            totals += torch.stack([loss * count, count])
    recipe._model.train()
    if distributed.is_initialized():
        distributed.all_reduce(totals)
    return float(totals[0] / totals[1])


def _loss(recipe: Any, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """The mean loss of a batch; recipes for several devices have it in the midst of training."""
    labels = batch.pop("labels")
    logits = recipe._model(**batch)
    labels = torch.hstack((labels[..., 1:], recipe.ignore_labels_cache[: labels.shape[0]]))
    if not isinstance(logits, list):
        labels, logits = labels.reshape(-1), logits.reshape(-1, logits.size(-1))
    loss: torch.Tensor = recipe._loss_fn(logits, labels)
    return loss
