"""TRL's methods and their settings, by the names of KEP-2839 where it has one.

A setting is called as TRL's flag is. Names of the KEP that TRL has dropped are accepted:
`max_seq_length` is `max_length`, and `max_prompt_length` has nothing left to say.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any, Literal

from msgspec import Meta

from windlass.backends.bounds import Alpha, Dropout, MaxLength, ModuleName, Rank

TargetModules = (
    Literal["all-linear"] | Annotated[list[ModuleName], Meta(min_length=1, max_length=32)]
)
Completion = Annotated[int, Meta(ge=1, le=1_048_576)]
Positive = Annotated[float, Meta(gt=0)]
NotNegative = Annotated[float, Meta(ge=0)]
# No flag, and nothing that reads as one.
Name = Annotated[str, Meta(pattern=r"^[^-\s]\S*\Z", max_length=512)]
Rewards = Annotated[list[Name], Meta(min_length=1, max_length=16)]
DPOLoss = Literal[
    "sigmoid", "hinge", "ipo", "exo_pair", "nca_pair", "robust", "bco_pair", "sppo_hard", "aot",
    "aot_unpaired", "apo_zero", "apo_down", "discopop", "sft", "sigmoid_norm",
]  # fmt: skip
DEFAULT_SFT_LENGTH = 2048


class TRLTrainerType(StrEnum):
    """Trainers of TRL; PPO is the KEP's, and refused with what to use instead."""

    SFT = "sft"
    DPO = "dpo"
    PPO = "ppo"
    ORPO = "orpo"
    KTO = "kto"
    GRPO = "grpo"
    RLOO = "rloo"
    REWARD = "reward"
    DISTILLATION = "distillation"


@dataclass(frozen=True)
class TRLPeftConfig:
    """A low-rank adapter in place of full fine-tuning; `load_in_4bit` is QLoRA.

    The one list of its settings: requests, jobs' documents (`lora`) and TRL's flags follow it.
    `asked` is a setting's name in a request and `flag` TRL's, where those are other ones; `later`
    marks what came after the first release, and is said only where it is not at its default.
    """

    r: Rank = field(default=16, metadata={"asked": "rank", "flag": "lora_r"})
    lora_alpha: Alpha = 32
    lora_dropout: Dropout = 0.05
    target_modules: TargetModules = field(
        default_factory=lambda: ["q_proj", "v_proj"], metadata={"flag": "lora_target_modules"}
    )
    use_rslora: bool = False
    use_dora: bool = False
    load_in_4bit: bool = field(default=False, metadata={"later": True})


@dataclass(frozen=True)
class TRLSFTConfig:
    """Supervised: rows of text, of prompts and completions, or of messages. Lengths in tokens."""

    max_seq_length: MaxLength | None = None
    packing: bool = False
    dataset_text_field: Name | None = None
    max_length: MaxLength | None = None
    assistant_only_loss: bool = False

    @property
    def tokens(self) -> int:
        """The length under either name, or the KEP's default."""
        return self.max_length or self.max_seq_length or DEFAULT_SFT_LENGTH


@dataclass(frozen=True)
class TRLDPOConfig:
    """Pairs of a chosen and a rejected answer, against a reference model."""

    beta: Positive = 0.1
    max_length: MaxLength = 1024
    max_prompt_length: MaxLength | None = None
    loss_type: DPOLoss = "sigmoid"


@dataclass(frozen=True)
class TRLORPOConfig:
    """Pairs of a chosen and a rejected answer, without a reference model."""

    beta: Positive = 0.1
    max_length: MaxLength = 1024
    max_prompt_length: MaxLength | None = None


@dataclass(frozen=True)
class TRLKTOConfig:
    """Answers that are labelled good or bad, each by itself."""

    beta: Positive = 0.1
    max_length: MaxLength = 1024
    max_prompt_length: MaxLength | None = None
    desirable_weight: Positive = 1.0
    undesirable_weight: Positive = 1.0
    loss_type: Literal["kto", "apo_zero_unpaired"] = "kto"


@dataclass(frozen=True)
class TRLGRPOConfig:
    """Prompts whose answers are rewarded, each against the others of its group.

    `reward_funcs` are TRL's, or functions by their dotted path in the image. `grader`, a document
    of `windlass.graders`, takes their place where our runner launches the trainer.
    """

    reward_funcs: Rewards | None = None
    reward_model_name_or_path: Name | None = None
    # TRL's 8 would divide no batch of 4.
    num_generations: Annotated[int, Meta(ge=2, le=256)] = 4
    max_completion_length: Completion = 512
    max_prompt_length: MaxLength | None = None
    temperature: Positive = 1.0
    beta: NotNegative = 0.0
    num_generations_eval: Annotated[int, Meta(ge=2, le=256)] | None = None
    grader: dict[str, Any] | None = None


@dataclass(frozen=True)
class TRLRLOOConfig:
    """Prompts whose answers are rewarded, each against the mean of the others."""

    reward_funcs: Rewards | None = None
    reward_model_name_or_path: Name | None = None
    num_generations: Annotated[int, Meta(ge=2, le=256)] = 2
    max_completion_length: Completion = 512
    max_prompt_length: MaxLength | None = None
    temperature: Positive = 1.0
    beta: NotNegative = 0.05
    num_generations_eval: Annotated[int, Meta(ge=2, le=256)] | None = None
    grader: dict[str, Any] | None = None


@dataclass(frozen=True)
class TRLRewardConfig:
    """Pairs of a chosen and a rejected answer, for a model that scores."""

    max_length: MaxLength = 1024
    center_rewards_coefficient: NotNegative | None = None


@dataclass(frozen=True)
class TRLDistillationConfig:
    """Prompts that a teacher's probabilities are learned on."""

    teacher_model_name_or_path: Name | None = None
    max_completion_length: Completion = 512
    temperature: Positive = 1.0
    beta: Annotated[float, Meta(ge=0, le=1)] = 1.0


Method = (
    TRLSFTConfig
    | TRLDPOConfig
    | TRLORPOConfig
    | TRLKTOConfig
    | TRLGRPOConfig
    | TRLRLOOConfig
    | TRLRewardConfig
    | TRLDistillationConfig
)
METHODS: dict[TRLTrainerType, type[Method]] = {
    TRLTrainerType.SFT: TRLSFTConfig,
    TRLTrainerType.DPO: TRLDPOConfig,
    TRLTrainerType.ORPO: TRLORPOConfig,
    TRLTrainerType.KTO: TRLKTOConfig,
    TRLTrainerType.GRPO: TRLGRPOConfig,
    TRLTrainerType.RLOO: TRLRLOOConfig,
    TRLTrainerType.REWARD: TRLRewardConfig,
    TRLTrainerType.DISTILLATION: TRLDistillationConfig,
}
