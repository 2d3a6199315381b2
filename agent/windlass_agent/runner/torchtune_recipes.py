"""TorchTune's recipes, with our report of their epochs and an evaluation after each."""

import importlib.util
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torchtune
from torch.utils.data import DataLoader
from torchtune import utils
from torchtune.data import padded_collate_sft
from torchtune.recipe_interfaces import FTRecipeInterface

from windlass_agent.runner.event_file import EventFile
from windlass_agent.runner.torchtune_checkpoints import Epochs
from windlass_agent.runner.torchtune_parts import TokenRows


def recipe(name: str) -> Any:
    """Returns the class of a recipe, which TorchTune ships as a script beside its package."""
    path = Path(torchtune.__file__).parent.parent / "recipes" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"torchtune_recipe_{name}", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"TorchTune has no recipe {name}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    (found,) = (
        each
        for each in vars(module).values()
        if isinstance(each, type)
        # A protocol that cannot be asked itself.
        and FTRecipeInterface in each.__mro__
        and each.__module__ == module.__name__
    )
    return found


def reporting(
    name: str, *, events: EventFile, epochs: Epochs, history: list[Any], held_out: Path
) -> type[Any]:
    """Returns a recipe's class that reports; `held_out` is evaluated on where it exists.

    `history` is of the attempts before.
    """

    class Reporting(recipe(name)):  # type: ignore[misc] # known when it runs
        def setup(self, cfg: Any) -> None:
            super().setup(cfg)
            # Only some recipes do this when they are resumed.
            self.global_step = self.epochs_run * self._steps_per_epoch
            total = self.total_epochs * self._steps_per_epoch
            self._metric_logger.begin(self, events, total_steps=total, history=history)

        def _setup_lr_scheduler(self, *, last_epoch: int, **settings: Any) -> Any:
            last_epoch = self.epochs_run * self._steps_per_epoch - 1
            return super()._setup_lr_scheduler(last_epoch=last_epoch, **settings)

        def save_checkpoint(self, epoch: int) -> None:
            if held_out.exists():
                self._metric_logger.report({"eval_loss": _evaluate(self, held_out)})
            super().save_checkpoint(epoch)
            folder = epochs.keep(
                epoch,
                step=self.global_step,
                is_last=epoch + 1 == self.total_epochs,
                dtype=str(self._dtype).removeprefix("torch."),
                history=self._metric_logger.history,
            )
            self._metric_logger.saved(folder)

    return Reporting


@torch.no_grad()
def _evaluate(recipe: Any, held_out: Path) -> float:
    """Returns the mean loss over the tokens of a file that are learned."""
    ignored = recipe._loss_fn.ignore_index
    tokenizer = recipe._tokenizer
    loader: Any = DataLoader(
        TokenRows(tokenizer, source=str(held_out)),
        batch_size=recipe._dataloader.batch_size,
        collate_fn=partial(padded_collate_sft, padding_idx=tokenizer.pad_id, ignore_idx=ignored),
    )
    recipe._model.eval()
    loss = tokens = 0.0
    for batch in loader:
        utils.batch_to_device(batch, recipe._device)
        count = float((batch["labels"] != ignored).sum())
        loss += float(recipe._loss_step(batch)) * count
        tokens += count
    recipe._model.train()
    return loss / tokens
