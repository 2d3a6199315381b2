"""The document of a job's TRL training: all that a tenant may influence, typed and bounded.

Documents are kept and read by other releases, so their fields do not follow `TRLConfig`.
"""

from dataclasses import fields
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from windlass.backends.bounds import (
    BatchSize,
    Divergence,
    Epochs,
    EvalSteps,
    Generations,
    MaxCompletion,
    MaxLength,
    MaxSteps,
    Nodes,
    Ratio,
    Scheduler,
    Seed,
    Temperature,
    Weight,
    WeightDecay,
)
from windlass.backends.methods import TrainerType
from windlass.backends.saving import SaveMinutes, SaveSteps
from windlass.backends.sharding import Sharding
from windlass.backends.trl.fields import TRLFields
from windlass.backends.trl.lora import DOCUMENT_NAMES, LATER, Lora
from windlass.backends.trl.methods import (
    METHODS,
    Name,
    TRLPeftConfig,
    TRLSFTConfig,
    TRLTrainerType,
)
from windlass.backends.typed import decode

# Fields of `TRLConfig` by those of the document.
_NAMES = {
    "learning_rate": "learning_rate",
    "seed": "seed",
    "epochs": "num_train_epochs",
    "max_steps": "max_steps",
    "batch_size": "per_device_train_batch_size",
    "gradient_accumulation_steps": "gradient_accumulation_steps",
    "lr_scheduler": "lr_scheduler_type",
    "warmup_ratio": "warmup_ratio",
    "weight_decay": "weight_decay",
    "gradient_checkpointing": "gradient_checkpointing",
    "logging_steps": "logging_steps",
    "num_nodes": "num_nodes",
    "eval_steps": "eval_steps",
    "save_steps": "save_steps",
    "save_minutes": "save_minutes",
    "sharding": "sharding",
    "from_adapter": "from_adapter",
}


_ONLINE = {
    "beta": "beta",
    "grader": "grader",
    "num_generations": "num_generations",
    "num_generations_eval": "num_generations_eval",
    "max_completion_length": "max_completion_length",
    "temperature": "temperature",
}


# The document's fields that are of some methods alone, by their names in `TRLConfig`.
OF_METHOD: dict[TrainerType, dict[str, str]] = {
    TrainerType.SFT: {"assistant_only_loss": "assistant_only_loss", "packing": "packing"},
    TrainerType.DPO: {"beta": "beta"},
    TrainerType.ORPO: {"beta": "beta"},
    TrainerType.KTO: {
        "beta": "beta",
        "desirable_weight": "desirable_weight",
        "undesirable_weight": "undesirable_weight",
    },
    TrainerType.REWARD: {"center_rewards_coefficient": "center_rewards_coefficient"},
    TrainerType.DISTILLATION: {
        "beta": "beta",
        "teacher": "teacher_model_name_or_path",
        "max_completion_length": "max_completion_length",
        "temperature": "temperature",
    },
    TrainerType.GRPO: _ONLINE,
    TrainerType.RLOO: _ONLINE,
}


class TRLTraining(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One TRL training; `peft` None trains every weight.

    `batch_size` is per process and forward pass; times `gradient_accumulation_steps` and
    nodes it is what one step sees. `warmup_ratio` is a part of all steps. `max_length` is in
    tokens. `gradient_checkpointing` None means: on an accelerator only; `eval_steps` None, that
    the validation file is gone through after each epoch. A state to go on from is saved every
    `save_steps` and `save_minutes` (see `saving`). `grader` is one of `windlass.graders`.
    `from_adapter`: the job's model is an adapter, and `peft` begins as it.
    """

    trainer_type: TrainerType
    learning_rate: Annotated[float, Meta(gt=0, le=1)]
    seed: Seed
    peft: Lora | None = None
    epochs: Epochs = 3
    max_steps: MaxSteps | None = None
    batch_size: BatchSize = 8
    gradient_accumulation_steps: BatchSize = 1
    lr_scheduler: Scheduler = "linear"
    warmup_ratio: Ratio = 0.03
    weight_decay: WeightDecay = 0.0
    max_length: MaxLength = 2048
    gradient_checkpointing: bool | None = None
    logging_steps: Annotated[int, Meta(ge=1, le=1000)] = 1
    num_nodes: Nodes | None = None
    eval_steps: EvalSteps | None = None
    save_steps: SaveSteps | None = None
    save_minutes: SaveMinutes | None = None
    sharding: Sharding | None = None
    from_adapter: bool = False
    # Of some methods alone (`OF_METHOD`).
    assistant_only_loss: bool | None = None
    packing: bool | None = None
    beta: Divergence | None = None
    desirable_weight: Weight | None = None
    undesirable_weight: Weight | None = None
    center_rewards_coefficient: Weight | None = None
    teacher: Name | None = None
    max_completion_length: MaxCompletion | None = None
    temperature: Temperature | None = None
    grader: dict[str, Any] | None = None
    num_generations: Generations | None = None
    num_generations_eval: Generations | None = None


def settings(training: TRLTraining) -> dict[str, Any]:
    """Returns the fields of the `TRLConfig` that a document stands for."""
    found: dict[str, Any] = {ours: getattr(training, name) for name, ours in _NAMES.items()}
    found["trainer_type"] = TRLTrainerType(training.trainer_type)
    if (peft := training.peft) is not None:
        found["peft_config"] = TRLPeftConfig(
            **{ours: getattr(peft, name) for name, ours in DOCUMENT_NAMES.items()}
        )
    if training.trainer_type is TrainerType.SFT:
        found["sft_config"] = TRLSFTConfig(
            max_length=training.max_length,
            packing=training.packing is True,
            assistant_only_loss=training.assistant_only_loss is not False,
        )
    else:
        found[f"{training.trainer_type}_config"] = _method(training)
    return found


def _method(training: TRLTraining) -> Any:
    """The settings of a method; what the document leaves out keeps TRL's default."""
    kind = METHODS[TRLTrainerType(training.trainer_type)]
    names = OF_METHOD[training.trainer_type]
    given = {ours: getattr(training, name) for name, ours in names.items()}
    if any(field.name == "max_length" for field in fields(kind)):
        given["max_length"] = training.max_length
    return kind(**{name: value for name, value in given.items() if value is not None})


def document(config: TRLFields) -> dict[str, Any]:
    """Returns the document that stands for a configuration, as far as one can."""
    found: dict[str, Any] = {name: getattr(config, ours) for name, ours in _NAMES.items()}
    found["trainer_type"] = str(config.trainer_type)
    if (peft := config.peft_config) is not None:
        found["peft"] = {name: getattr(peft, ours) for name, ours in DOCUMENT_NAMES.items()}
    if isinstance(sft := config.method, TRLSFTConfig):
        found |= {
            "max_length": sft.tokens,
            "packing": sft.packing,
            "assistant_only_loss": sft.assistant_only_loss,
        }
    elif found["trainer_type"] in OF_METHOD:
        names = OF_METHOD[TrainerType(found["trainer_type"])]
        values = {name: getattr(config.method, ours) for name, ours in names.items()}
        length = getattr(config.method, "max_length", None)
        found |= values if length is None else {"max_length": length, **values}
    written: dict[str, Any] = msgspec.to_builtins(decode(found, TRLTraining, at=""))
    # A release that has not heard of a field refuses it: it hears of those that are set.
    later = {"eval_steps", "save_steps", "save_minutes", "sharding"}
    later |= {name for names in OF_METHOD.values() for name in names}
    if (adapter := written["peft"]) is not None:
        written["peft"] = {n: v for n, v in adapter.items() if n not in LATER or v != LATER[n]}
    if not written["from_adapter"]:
        del written["from_adapter"]
    return {
        name: value for name, value in written.items() if value is not None or name not in later
    }
