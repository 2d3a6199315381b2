"""The fields of `TRLConfig`, which checks, flags and documents read."""

from dataclasses import dataclass
from typing import Annotated, Any

from msgspec import Meta

from windlass.backends.bounds import Ratio, Scheduler, Seed, WeightDecay
from windlass.backends.saving import SaveMinutes, SaveSteps
from windlass.backends.sharding import Sharding
from windlass.backends.trl.methods import (
    METHODS,
    Method,
    Name,
    TRLDistillationConfig,
    TRLDPOConfig,
    TRLGRPOConfig,
    TRLKTOConfig,
    TRLORPOConfig,
    TRLPeftConfig,
    TRLRewardConfig,
    TRLRLOOConfig,
    TRLSFTConfig,
    TRLTrainerType,
)
from windlass.backends.trl.versions import PINNED

Count = Annotated[int, Meta(ge=1)]


@dataclass(frozen=True)
class TRLFields:
    """One TRL training; `peft_config` None trains every weight.

    A method's settings stand in the field named after it, and None keeps their defaults. Paths
    that are None are the job's own. `bf16` and `gradient_checkpointing` None mean: on an
    accelerator only, and `eval_steps` None that an evaluation follows each epoch. Batch sizes are
    per process; `warmup_ratio` is a part of all steps. `from_adapter` says that the job's model is
    an adapter, which that of `peft_config` begins as.
    """

    trainer_type: TRLTrainerType = TRLTrainerType.SFT
    model_name_or_path: Name | None = None
    learning_rate: Annotated[float, Meta(gt=0, le=1)] = 2e-5
    num_train_epochs: Count = 3
    per_device_train_batch_size: Count = 4
    gradient_accumulation_steps: Count = 1
    bf16: bool | None = None
    fp16: bool = False
    peft_config: TRLPeftConfig | None = None
    sft_config: TRLSFTConfig | None = None
    dpo_config: TRLDPOConfig | None = None
    num_nodes: Count | None = None
    resources_per_node: dict[str, Any] | None = None
    output_dir: Name | None = None
    # What the KEP has not.
    from_adapter: bool = False
    dataset_name: Name | None = None
    orpo_config: TRLORPOConfig | None = None
    kto_config: TRLKTOConfig | None = None
    grpo_config: TRLGRPOConfig | None = None
    rloo_config: TRLRLOOConfig | None = None
    reward_config: TRLRewardConfig | None = None
    distillation_config: TRLDistillationConfig | None = None
    max_steps: Count | None = None
    eval_steps: Count | None = None
    save_steps: SaveSteps | None = None
    save_minutes: SaveMinutes | None = None
    sharding: Sharding | None = None
    lr_scheduler_type: Scheduler = "linear"
    warmup_ratio: Ratio = 0.03
    weight_decay: WeightDecay = 0.0
    gradient_checkpointing: bool | None = None
    logging_steps: Count = 1
    seed: Seed = 42
    trl_version: str = PINNED

    @property
    def method(self) -> Method:
        """The settings of the method that is trained with."""
        kind = TRLTrainerType(self.trainer_type)
        given: Method | None = getattr(self, f"{kind}_config")
        return METHODS[kind]() if given is None else given
