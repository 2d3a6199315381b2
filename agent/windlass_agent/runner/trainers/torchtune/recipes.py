"""TorchTune's recipes, with our report of their epochs, and a state saved within them."""

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
from torchtune.training.checkpointing._checkpoint_client import CheckpointClient, TrainingProgress

from windlass_agent.runner.protocol.event_file import EventFile
from windlass_agent.runner.trainers.saving import SaveClock
from windlass_agent.runner.trainers.torchtune.checkpoints import Epochs
from windlass_agent.runner.trainers.torchtune.evaluation import evaluate
from windlass_agent.runner.trainers.torchtune.parts import Batches, EventLogger


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
    """Destinations of a recipe's progress reports; `history` is that of earlier attempts.

    `step` is the last one that they made, None where it is the end of an epoch. `held_out` is
    evaluated on after each epoch, where there is one.
    """

    events: EventFile
    epochs: Epochs
    clock: SaveClock
    history: Sequence[Any]
    step: int | None
    held_out: Path | None

    def begin(self, recipe: Any) -> None:
        """Takes up a recipe that is set up."""
        recipe.global_step = self.steps_before(recipe)
        if not _is_first():
            # TorchTune gives one to the first process alone.
            recipe._metric_logger = EventLogger()
        total = recipe.total_epochs * recipe._steps_per_epoch
        recipe._metric_logger.begin(
            recipe, self.events, clock=self.clock, total_steps=total, history=list(self.history)
        )
        recipe._dataloader = Batches(
            recipe._dataloader,
            steps=recipe._steps_per_epoch,
            accumulation=recipe._gradient_accumulation_steps,
            made=recipe.global_step - recipe.epochs_run * recipe._steps_per_epoch,
            before_step=partial(self.before_step, recipe),
        )

    def steps_before(self, recipe: Any) -> int:
        """The number of steps of the attempts before; the recipe knows their epochs."""
        if self.step is not None:
            return self.step
        return int(recipe.epochs_run * recipe._steps_per_epoch)

    def before_step(self, recipe: Any, *, is_first: bool) -> None:
        """Saves what is due and leaves when asked to, between two steps.

        What is drawn at a step goes by its number alone, so that it is the same after a break.
        """
        logger = recipe._metric_logger
        if (logger.is_due or logger.is_stopping) and not is_first:
            self._save_within(recipe)
        if logger.is_stopping:
            raise SystemExit(0)
        rank = distributed.get_rank() if distributed.is_initialized() else 0
        torch.manual_seed(recipe.seed + (recipe.global_step << 16) + rank)

    def _save_within(self, recipe: Any) -> None:
        epoch = recipe.epochs_run
        # What it saves of its last epoch is a model alone, without what is needed to go on.
        recipe.total_epochs += 1
        try:
            _save_unreported(recipe, epoch)
        finally:
            recipe.total_epochs -= 1
        self._hand_over(recipe, epoch, to_resume=True)

    def keep(self, recipe: Any, save: Callable[..., None], *, epoch: int, **parts: Any) -> None:
        """Saves what an epoch has made, by TorchTune's own `save`, with what it is worth."""
        found = None if self.held_out is None else evaluate(recipe, self.held_out)
        if found is not None and _is_first():
            recipe._metric_logger.report(found)
        save(epoch=epoch, **parts)
        self._hand_over(recipe, epoch, to_resume=False)

    def _hand_over(self, recipe: Any, epoch: int, *, to_resume: bool) -> None:
        folder = None
        if _is_first():
            folder = self.epochs.keep(
                epoch,
                step=recipe.global_step,
                is_last=not to_resume and epoch + 1 == recipe.total_epochs,
                dtype=str(recipe._dtype).removeprefix("torch."),
                history=recipe._metric_logger.history,
            )
        recipe._metric_logger.saved(folder, to_resume=to_resume)


def reporting(name: str, report: Report) -> type[Any]:
    """Returns a recipe's class that reports."""

    class Reporting(recipe(name)):  # type: ignore[misc]  # the recipe is chosen at run time
        def setup(self, cfg: Any) -> None:
            super().setup(cfg)
            report.begin(self)
            if hasattr(self, "_checkpoint_client"):
                client = self._checkpoint_client
                client.save_checkpoint = partial(report.keep, self, client.save_checkpoint)

        def _setup_data(self, *args: Any, **settings: Any) -> Any:
            if "dataloader_state_dict" in settings:
                # Where to go on, `Batches` knows.
                settings["dataloader_state_dict"] = None
            return super()._setup_data(*args, **settings)

        def _setup_lr_scheduler(self, *, last_epoch: int, **settings: Any) -> Any:
            last_epoch = report.steps_before(self) - 1
            return super()._setup_lr_scheduler(last_epoch=last_epoch, **settings)

        def save_checkpoint(self, epoch: int) -> None:
            report.keep(self, super().save_checkpoint, epoch=epoch)

        def cleanup(self) -> None:
            if not _is_first():
                # TorchTune closes that of the first process.
                self._metric_logger.close()
            super().cleanup()

    return Reporting


def _save_unreported(recipe: Any, epoch: int) -> None:
    """Writes what an epoch has made so far, as TorchTune does at its end."""
    if not hasattr(recipe, "_checkpoint_client"):
        super(type(recipe), recipe).save_checkpoint(epoch)
        return
    progress = TrainingProgress(
        seed=recipe.seed,
        epochs_run=recipe.epochs_run,
        total_epochs=recipe.total_epochs,
        max_steps_per_epoch=recipe.max_steps_per_epoch,
    )
    CheckpointClient.save_checkpoint(
        recipe._checkpoint_client,
        model=recipe._model,
        optimizer=recipe._optimizer,
        training_progress=progress,
        epoch=epoch,
    )


def _is_first() -> bool:
    return not distributed.is_initialized() or distributed.get_rank() == 0
