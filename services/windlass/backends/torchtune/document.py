"""The document of a job's TorchTune training: all that a tenant may influence, typed and bounded.

A tenant names values and never an override: TorchTune imports and calls whatever an override
names.
"""

from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_type_hints

import msgspec
from msgspec import Meta, Struct

from windlass.backends.backend import InvalidConfig
from windlass.backends.bounds import (
    Alpha,
    BatchSize,
    Beta,
    Dropout,
    Epochs,
    MaxLength,
    Nodes,
    Rank,
    Ratio,
    Seed,
    WeightDecay,
)
from windlass.backends.hyperparameters import Resolved
from windlass.backends.methods import TrainerType
from windlass.backends.saving import SaveMinutes, SaveSteps
from windlass.backends.torchtune.recipes import TrainingResources, choose_recipe

Method = Literal["supervised", "dpo"]
Scheduler = Literal["cosine", "constant"]
# By the names of the model's own files; TorchTune takes those of the MLP together.
Attention = Literal["q_proj", "k_proj", "v_proj", "o_proj"]
Module = Literal["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
Modules = Annotated[list[Module], Meta(min_length=1, max_length=7)]
_MLP = frozenset({"gate_proj", "up_proj", "down_proj"})
_TAKEN_OVER = (
    *("max_length", "lr_scheduler", "warmup_ratio", "weight_decay", "num_nodes"),
    *("save_steps", "save_minutes"),
)
_METHODS: dict[TrainerType, Method] = {TrainerType.SFT: "supervised", TrainerType.DPO: "dpo"}


class Adapter(Struct, frozen=True, forbid_unknown_fields=True):
    """A low-rank adapter in place of full fine-tuning: DoRA, QLoRA, or both, where asked for."""

    rank: Rank = 16
    alpha: Alpha = 32
    dropout: Dropout = 0.0
    target_modules: Modules | Literal["all-linear"] = "all-linear"
    use_dora: bool = False
    load_in_4bit: bool = False

    @property
    def attention_modules(self) -> list[str]:
        """The modules of the attention that get an adapter, by TorchTune's names."""
        every = self.target_modules == "all-linear"
        chosen = [name for name in get_args(Attention) if every or name in self.target_modules]
        return ["output_proj" if name == "o_proj" else name for name in chosen]

    @property
    def has_mlp(self) -> bool:
        """True if the MLP gets adapters too."""
        return self.target_modules == "all-linear" or bool(_MLP & set(self.target_modules))


class TorchTuneTraining(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One TorchTune training; `adapter` None trains every weight.

    `batch_size` is of a forward pass of each process; times `gradient_accumulation_steps` it is
    what one step sees of it. `warmup_ratio` is a part of all steps. `max_length` is in tokens.
    `beta` is DPO's. A state to go on from is saved every `save_steps` and `save_minutes` (see
    `saving`).
    """

    method: Method
    learning_rate: Annotated[float, Meta(gt=0, le=1)]
    seed: Seed
    adapter: Adapter | None = None
    epochs: Epochs = 3
    batch_size: BatchSize = 8
    gradient_accumulation_steps: BatchSize = 1
    lr_scheduler: Scheduler = "cosine"
    warmup_ratio: Ratio = 0.03
    weight_decay: WeightDecay = 0.0
    max_length: MaxLength = 2048
    beta: Beta | None = None
    num_nodes: Nodes = 1
    save_steps: SaveSteps | None = None
    save_minutes: SaveMinutes | None = None

    def recipe(self, processes: int) -> str:
        """Returns the name of TorchTune's recipe for so many processes on each node."""
        place = TrainingResources(nodes=self.num_nodes, processes=processes)
        if self.method == "dpo":
            return f"lora_dpo_{'single_device' if place.is_single_device else 'distributed'}"
        overrides = [] if self.adapter is None else ["model.lora_attn_modules=[]"]
        # A recipe's configuration would name a model of TorchTune's; ours is the job's.
        return choose_recipe("", overrides, place).name

    def check_place(self, processes: int, *, at: str) -> None:
        """Raises InvalidConfig where TorchTune cannot share out what is trained."""
        if self.adapter is None:
            return
        if self.num_nodes > 1:
            raise InvalidConfig(
                f"{at}num_nodes",
                "must be 1 with adapters: TorchTune trains those on one node",
            )
        if self.adapter.load_in_4bit and processes > 1:
            raise InvalidConfig(
                f"{at}load_in_4bit", "must be false on several devices: TorchTune's QLoRA takes one"
            )

    def check(self, *, at: str) -> None:
        """Raises InvalidConfig for what no recipe trains; `at` is where the settings were."""
        if self.method == "dpo" and self.adapter is None:
            raise InvalidConfig(
                f"{at}lora", "must be true for dpo: TorchTune trains it only with adapters"
            )
        if (self.method == "dpo") != (self.beta is not None):
            raise InvalidConfig(f"{at}beta", "is only allowed with the method dpo")
        if self.method == "dpo" and self.adapter is not None and self.adapter.use_dora:
            raise InvalidConfig(
                f"{at}use_dora", "must be false for dpo: TorchTune's recipe leaves DoRA unprepared"
            )
        if self.adapter is not None and self.adapter.target_modules != "all-linear":
            mlp = _MLP & set(self.adapter.target_modules)
            if mlp and mlp != _MLP:
                missing = ", ".join(sorted(_MLP - mlp))
                raise InvalidConfig(
                    f"{at}target_modules",
                    f"TorchTune takes the modules of the MLP together: {missing} is missing",
                )
            if not self.adapter.attention_modules:
                raise InvalidConfig(
                    f"{at}target_modules", "must name a module of the attention, such as q_proj"
                )


if TYPE_CHECKING:
    AdapterSettings = Struct
else:
    _HINTS = get_type_hints(Adapter, include_extras=True)
    AdapterSettings = msgspec.defstruct(
        "AdapterSettings",
        [(name, _HINTS[name] | None, None) for name in Adapter.__struct_fields__],
        frozen=True,
        forbid_unknown_fields=True,
        module=__name__,
        namespace={"__doc__": "Settings of an adapter; what is left out keeps its default."},
    )


class TorchTuneSettings(AdapterSettings, frozen=True, forbid_unknown_fields=True):
    """Settings of a request (`extra_body.windlass.config`); the names are those of TRL jobs.

    `lora` false trains every weight. `alpha` is twice the rank unless set. `load_in_4bit` is
    QLoRA.
    """

    lora: bool = True
    max_length: MaxLength | None = None
    lr_scheduler: Scheduler | None = None
    warmup_ratio: Ratio | None = None
    weight_decay: WeightDecay | None = None
    num_nodes: Nodes | None = None
    save_steps: SaveSteps | None = None
    save_minutes: SaveMinutes | None = None

    def training(
        self, asked: Resolved, *, seed: int, per_pass: int, accumulation: int, at: str
    ) -> TorchTuneTraining:
        """Returns the document of a job; raises InvalidConfig."""
        given = {n: v for n, v in msgspec.structs.asdict(self).items() if v is not None}
        training = TorchTuneTraining(
            method=_METHODS[asked.trainer_type],
            learning_rate=asked.learning_rate,
            seed=seed,
            adapter=self._adapter(given, at=at),
            epochs=asked.epochs,
            batch_size=per_pass,
            gradient_accumulation_steps=accumulation,
            beta=asked.beta,
            **{name: given[name] for name in _TAKEN_OVER if name in given},
        )
        training.check(at=at)
        return training

    def _adapter(self, given: dict[str, Any], *, at: str) -> Adapter | None:
        asked = {name: given[name] for name in Adapter.__struct_fields__ if name in given}
        if self.lora:
            if "rank" in asked:
                asked.setdefault("alpha", 2 * asked["rank"])
            return Adapter(**asked)
        for name in asked:
            raise InvalidConfig(f"{at}{name}", "applies only to LoRA, and `lora` is false")
        return None
