"""The document of a TRL job: every value that a tenant may influence, typed and bounded."""

from enum import StrEnum
from typing import Annotated, Literal

from msgspec import Meta, Struct

# A module's name; the pattern keeps flags and regular expressions out.
ModuleName = Annotated[
    str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z0-9_]+)*\Z", max_length=128)
]
TargetModules = (
    Literal["all-linear"] | Annotated[list[ModuleName], Meta(min_length=1, max_length=32)]
)
Rank = Annotated[int, Meta(ge=1, le=512)]
Alpha = Annotated[int, Meta(ge=1, le=1024)]
Dropout = Annotated[float, Meta(ge=0, lt=1)]
Epochs = Annotated[int, Meta(ge=1, le=50)]
BatchSize = Annotated[int, Meta(ge=1, le=256)]
Beta = Annotated[float, Meta(gt=0, le=2)]
MaxLength = Annotated[int, Meta(ge=16, le=1_048_576)]
MaxSteps = Annotated[int, Meta(ge=1, le=10_000_000)]
Ratio = Annotated[float, Meta(ge=0, lt=1)]
WeightDecay = Annotated[float, Meta(ge=0, le=1)]
Nodes = Annotated[int, Meta(ge=1, le=64)]
Seed = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Scheduler = Literal["linear", "cosine", "constant", "constant_with_warmup"]


class TrainerType(StrEnum):
    """TRL's trainers that we drive."""

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


class TRLConfig(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
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
