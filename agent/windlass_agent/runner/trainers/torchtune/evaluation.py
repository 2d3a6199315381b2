"""Evaluation on held-out rows between TorchTune's epochs."""

from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import distributed
from torchtune import utils
from torchtune.data import CROSS_ENTROPY_IGNORE_IDX, padded_collate_dpo, padded_collate_sft
from torchtune.modules.peft import disable_adapter

from windlass_agent.runner.trainers.torchtune.parts import TokenRows

_REWARDS = ("rewards/chosen", "rewards/rejected", "rewards/accuracies", "rewards/margins")


@torch.no_grad()  # type: ignore[untyped-decorator]  # mypy skips torch
def evaluate(recipe: Any, held_out: Path) -> dict[str, float]:
    """Returns the means over a file by TRL's names; the processes share its rows.

    Answers count by their learned tokens, preferences one by one.
    """
    is_dpo = hasattr(recipe, "concatenated_forward")
    names = ("loss", *_REWARDS) if is_dpo else ("loss",)
    collate = partial(
        padded_collate_dpo if is_dpo else padded_collate_sft,
        padding_idx=recipe._tokenizer.pad_id,
        ignore_idx=CROSS_ENTROPY_IGNORE_IDX,
    )
    rows, size = TokenRows(recipe._tokenizer, source=str(held_out)), recipe._dataloader.batch_size
    world, rank = utils.get_world_size_and_rank()
    totals = torch.zeros(len(names) + 1, dtype=torch.float64, device=recipe._device)
    recipe._model.eval()
    for first in range(0, len(rows), size * world):
        own = range(first + rank * size, len(rows))[:size]
        # Who has none left goes along, since each holds a part of the weights.
        batch = collate([rows[index] for index in own or range(1)])
        sums = _preferences(recipe, batch) if is_dpo else _answers(recipe, batch)
        if own:
            totals += sums
    recipe._model.train()
    if distributed.is_initialized():
        distributed.all_reduce(totals)
    means = (totals[:-1] / totals[-1]).tolist()
    return {f"eval_{name}": mean for name, mean in zip(names, means, strict=True)}


def _answers(recipe: Any, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """The loss of a batch, summed over tokens, and their number."""
    utils.batch_to_device(batch, recipe._device)
    labels = batch.pop("labels")
    count = (labels != CROSS_ENTROPY_IGNORE_IDX).sum()
    # Recipes for several devices have it in the midst of training.
    logits = recipe._model(**batch)
    labels = torch.hstack((labels[..., 1:], recipe.ignore_labels_cache[: labels.shape[0]]))
    if not isinstance(logits, list):
        labels, logits = labels.reshape(-1), logits.reshape(-1, logits.size(-1))
    return torch.stack([recipe._loss_fn(logits, labels) * count, count])


def _preferences(recipe: Any, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """The loss and rewards of a batch, summed over preferences, and their number."""
    chosen, rejected, *_ = recipe.concatenated_forward(recipe._model, batch)
    with disable_adapter(recipe._model):
        before, before_rejected, *_ = recipe.concatenated_forward(recipe._model, batch)
    loss, good, bad = recipe._loss_fn(chosen, rejected, before, before_rejected)
    values = (loss, good, bad, (good > bad).float(), good - bad, torch.ones_like(loss))
    return torch.stack([value.sum() for value in values])
