"""The document of a job's TRL training: all that a tenant may influence, typed and bounded.

Documents are kept and read by other releases, so their fields do not follow `TRLConfig`.
"""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from windlass.backends.trl_methods import (
    Alpha,
    Dropout,
    MaxLength,
    Rank,
    TargetModules,
    TRLDPOConfig,
    TRLPeftConfig,
    TRLSFTConfig,
    TRLTrainerType,
)
from windlass.backends.typed import decode

if TYPE_CHECKING:
    from windlass.backends.trl import TRLConfig

Epochs = Annotated[int, Meta(ge=1, le=50)]
BatchSize = Annotated[int, Meta(ge=1, le=256)]
Beta = Annotated[float, Meta(gt=0, le=2)]
MaxSteps = Annotated[int, Meta(ge=1, le=10_000_000)]
Ratio = Annotated[float, Meta(ge=0, lt=1)]
WeightDecay = Annotated[float, Meta(ge=0, le=1)]
Nodes = Annotated[int, Meta(ge=1, le=64)]
Seed = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Scheduler = Literal["linear", "cosine", "constant", "constant_with_warmup"]

DEFAULT_BETA = 0.1

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
}
_ADAPTER_NAMES = {
    "r": "r",
    "alpha": "lora_alpha",
    "dropout": "lora_dropout",
    "target_modules": "target_modules",
    "use_rslora": "use_rslora",
    "use_dora": "use_dora",
}


class TrainerType(StrEnum):
    """TRL's trainers that jobs use."""

    SFT = "sft"
    DPO = "dpo"


class Lora(Struct, frozen=True, forbid_unknown_fields=True):
    """A low-rank adapter in place of full fine-tuning."""

    r: Rank = 16
    alpha: Alpha = 32
    dropout: Dropout = 0.05
    target_modules: TargetModules = "all-linear"
    use_rslora: bool = False
    use_dora: bool = False


class Training(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One TRL training; `peft` None trains every weight.

    `batch_size` is per process and forward pass; times `gradient_accumulation_steps` and
    nodes it is what one step sees. `warmup_ratio` is a part of all steps. `max_length` is in
    tokens. `gradient_checkpointing` None means: on an accelerator only.
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
    # Supervised alone.
    assistant_only_loss: bool | None = None
    packing: bool | None = None
    # Preference alone.
    beta: Beta | None = None
    num_nodes: Nodes | None = None


def settings(training: Training) -> dict[str, Any]:
    """Returns the fields of the `TRLConfig` that a document stands for."""
    found: dict[str, Any] = {ours: getattr(training, name) for name, ours in _NAMES.items()}
    found["trainer_type"] = TRLTrainerType(training.trainer_type)
    if (peft := training.peft) is not None:
        found["peft_config"] = TRLPeftConfig(
            **{ours: getattr(peft, name) for name, ours in _ADAPTER_NAMES.items()}
        )
    if training.trainer_type is TrainerType.SFT:
        found["sft_config"] = TRLSFTConfig(
            max_length=training.max_length,
            packing=training.packing is True,
            assistant_only_loss=training.assistant_only_loss is not False,
        )
    else:
        beta = DEFAULT_BETA if training.beta is None else training.beta
        found["dpo_config"] = TRLDPOConfig(max_length=training.max_length, beta=beta)
    return found


def document(config: "TRLConfig") -> dict[str, Any]:
    """Returns the document that stands for a configuration, as far as one can."""
    found: dict[str, Any] = {name: getattr(config, ours) for name, ours in _NAMES.items()}
    found["trainer_type"] = str(config.trainer_type)
    if (peft := config.peft_config) is not None:
        found["peft"] = {name: getattr(peft, ours) for name, ours in _ADAPTER_NAMES.items()}
    if isinstance(sft := config.method, TRLSFTConfig):
        found |= {
            "max_length": sft.tokens,
            "packing": sft.packing,
            "assistant_only_loss": sft.assistant_only_loss,
        }
    elif isinstance(dpo := config.method, TRLDPOConfig):
        found |= {"max_length": dpo.max_length, "beta": dpo.beta}
    written: dict[str, Any] = msgspec.to_builtins(decode(found, Training, at=""))
    return written
