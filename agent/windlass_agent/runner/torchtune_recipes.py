"""TorchTune's recipes, with our report of their epochs and an evaluation after each."""

import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torchtune
from torch import distributed
from torchtune.recipe_interfaces import FTRecipeInterface

from windlass_agent.runner.event_file import EventFile
from windlass_agent.runner.torchtune_checkpoints import Epochs
from windlass_agent.runner.torchtune_evaluation import evaluate
from windlass_agent.runner.torchtune_parts import EventLogger


def recipe(name: str) -> Any:
    """Returns the class of a recipe, which TorchTune ships as a script beside its package."""
    path = Path(torchtune.__file__).parent.parent / "recipes" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"torchtune_recipe_{name}", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"TorchTune has no recipe {name}")
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    # Our processes have met before; some recipes would have them meet again.
    module.init_process_group = lambda *_, **__: None
    if not torch.cuda.is_available():
        # Those for several processes ask a GPU about its memory, and fail where there is none.
        for asked in ("get_memory_stats", "log_memory_stats", "cleanup_before_training"):
            setattr(module.training, asked, lambda *_, **__: {})
    (found,) = (
        each
        for each in vars(module).values()
        if isinstance(each, type)
        # A protocol that cannot be asked itself.
        and FTRecipeInterface in each.__mro__
        and each.__module__ == module.__name__
    )
    return found


@dataclass(frozen=True, kw_only=True)
class Report:
    """Where a recipe's progress goes; `history` is of the attempts before.

    `held_out` is evaluated on after each epoch, where there is one.
    """

    events: EventFile
    epochs: Epochs
    history: Sequence[Any]
    held_out: Path | None

    def begin(self, recipe: Any) -> None:
        """Takes up a recipe that is set up."""
        # Only some recipes do this when they are resumed.
        recipe.global_step = recipe.epochs_run * recipe._steps_per_epoch
        if not _is_first():
            # TorchTune gives one to the first process alone.
            recipe._metric_logger = EventLogger()
        total = recipe.total_epochs * recipe._steps_per_epoch
        recipe._metric_logger.begin(
            recipe, self.events, total_steps=total, history=list(self.history)
        )

    def keep(self, recipe: Any, save: Callable[..., None], *, epoch: int, **parts: Any) -> None:
        """Saves what an epoch has made, by TorchTune's own `save`, with what it is worth."""
        loss = None if self.held_out is None else evaluate(recipe, self.held_out)
        if loss is not None and _is_first():
            recipe._metric_logger.report({"eval_loss": loss})
        save(epoch=epoch, **parts)
        if not _is_first():
            return
        folder = self.epochs.keep(
            epoch,
            step=recipe.global_step,
            is_last=epoch + 1 == recipe.total_epochs,
            dtype=str(recipe._dtype).removeprefix("torch."),
            history=recipe._metric_logger.history,
        )
        recipe._metric_logger.saved(folder)


def reporting(name: str, report: Report) -> type[Any]:
    """Returns a recipe's class that reports."""

    class Reporting(recipe(name)):  # type: ignore[misc] # known when it runs
        def setup(self, cfg: Any) -> None:
            super().setup(cfg)
            report.begin(self)
            if hasattr(self, "_checkpoint_client"):
                client = self._checkpoint_client
                client.save_checkpoint = partial(report.keep, self, client.save_checkpoint)

        def _setup_lr_scheduler(self, *, last_epoch: int, **settings: Any) -> Any:
            last_epoch = self.epochs_run * self._steps_per_epoch - 1
            return super()._setup_lr_scheduler(last_epoch=last_epoch, **settings)

        def save_checkpoint(self, epoch: int) -> None:
            report.keep(self, super().save_checkpoint, epoch=epoch)

        def cleanup(self) -> None:
            if not _is_first():
                # TorchTune closes that of the first process.
                self._metric_logger.close()
            super().cleanup()

    return Reporting


def _is_first() -> bool:
    return not distributed.is_initialized() or distributed.get_rank() == 0
