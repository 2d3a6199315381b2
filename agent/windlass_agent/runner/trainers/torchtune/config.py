"""The configuration of a TorchTune recipe for a job: every value of it is ours or is checked."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any

from windlass.backends.torchtune.document import TorchTuneTraining
from windlass_agent.runner.trainers.torchtune import model as torchtune_model

_PARTS = "windlass_agent.runner.trainers.torchtune.parts"
_MAX_GRADIENT = 1.0
# Under the output folder, where TorchTune writes.
WORK = "tune"
# The folder that a resumed training begins from, in the place of an epoch's: TorchTune takes the
# latest, and none of ours is.
RESUMED = "epoch_1000000"


@dataclass(frozen=True, kw_only=True)
class RecipeInputs:
    """Folders of a job, the device, how many train, and the checkpoint that it goes on from."""

    model: Path
    dataset: Path
    output: Path
    device: str
    processes: int = 1
    resume: Path | None = None


@dataclass(frozen=True, kw_only=True)
class Steps:
    """Batches and steps of each process; TorchTune drops incomplete batches."""

    batch_size: int
    accumulation: int
    per_epoch: int
    total: int

    @classmethod
    def of(cls, training: TorchTuneTraining, rows: int, *, processes: int) -> "Steps":
        """Returns the steps for so many rows; fewer than a batch become a smaller one."""
        # Some come twice, so that each process has as many.
        rows = ceil(rows / processes)
        batch_size = min(training.batch_size, rows)
        accumulation = min(training.gradient_accumulation_steps, rows // batch_size)
        per_epoch = rows // batch_size // accumulation
        return cls(
            batch_size=batch_size,
            accumulation=accumulation,
            per_epoch=per_epoch,
            total=per_epoch * training.epochs,
        )

    def rounding(self, rows: int, *, processes: int) -> str:
        """A remark on rows that do not fill steps; empty where all do."""
        batch = self.batch_size * self.accumulation * processes
        left_out = rows - self.per_epoch * batch
        if left_out <= 0:
            return ""
        return (
            f"Each pass leaves out {left_out} of {rows} examples, drawn anew for each: "
            f"{self.per_epoch} steps of {batch} examples are made of the others."
        )


def recipe_config(
    training: TorchTuneTraining,
    places: RecipeInputs,
    *,
    model: Mapping[str, Any],
    weights: Sequence[str],
    rows: int,
    max_tokens: int,
    pad_id: int,
) -> dict[str, Any]:
    """The configuration of a recipe; `model` is the base's `config.json`, `weights` its files.

    Raises Failure for a model that TorchTune cannot build.
    """
    steps = Steps.of(training, rows, processes=places.processes)
    on_gpu = places.device == "cuda"
    return {
        "model": torchtune_model.component(model, training.adapter, max_tokens=max_tokens),
        "tokenizer": {"_component_": f"{_PARTS}.Padding", "pad_id": pad_id},
        "dataset": {
            "_component_": f"{_PARTS}.TokenRows",
            "source": str(places.dataset / "train.jsonl"),
        },
        "checkpointer": {
            "_component_": "torchtune.training.FullModelHFCheckpointer",
            "checkpoint_dir": str(places.model),
            "checkpoint_files": list(weights),
            "recipe_checkpoint": None,
            "output_dir": str(places.output / WORK),
            "model_type": torchtune_model.model_type(model),
        },
        "resume_from_checkpoint": places.resume is not None,
        # Merging on a CPU would change the base in place; an adapter is served as it is.
        "save_adapter_weights_only": training.adapter is not None,
        "output_dir": str(places.output / WORK),
        "seed": training.seed,
        "shuffle": True,
        "batch_size": steps.batch_size,
        "gradient_accumulation_steps": steps.accumulation,
        "epochs": training.epochs,
        "max_steps_per_epoch": None,
        "optimizer": {
            "_component_": "torch.optim.AdamW",
            "lr": training.learning_rate,
            "weight_decay": training.weight_decay,
        },
        "optimizer_in_bwd": False,
        "lr_scheduler": {
            "_component_": "torchtune.training.lr_schedulers.get_cosine_schedule_with_warmup",
            "num_warmup_steps": ceil(training.warmup_ratio * steps.total),
            # No cycle is a rate that stays.
            "num_cycles": 0.5 if training.lr_scheduler == "cosine" else 0.0,
        },
        "loss": _loss(training),
        "clip_grad_norm": _MAX_GRADIENT,
        "compile": False,
        "device": places.device,
        "dtype": "bf16" if on_gpu else "fp32",
        "enable_activation_checkpointing": on_gpu,
        "enable_activation_offloading": False,
        "metric_logger": {"_component_": f"{_PARTS}.EventLogger"},
        "log_every_n_steps": 1,
        "log_peak_memory_stats": False,
    }


def _loss(training: TorchTuneTraining) -> dict[str, Any]:
    if training.method == "dpo":
        return {"_component_": "torchtune.rlhf.loss.DPOLoss", "beta": training.beta}
    return {"_component_": "torchtune.modules.loss.CEWithChunkedOutputLoss"}
