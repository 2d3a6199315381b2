"""Settings of a request beyond OpenAI's hyperparameters (`extra_body.windlass.config`)."""

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from windlass.backends.adapters import AdapterShape
from windlass.backends.backend import InvalidConfig, Sizing
from windlass.backends.bounds import (
    Divergence,
    MaxCompletion,
    MaxLength,
    MaxSteps,
    Nodes,
    Ratio,
    Scheduler,
    Temperature,
    Weight,
    WeightDecay,
)
from windlass.backends.methods import ONLINE, TrainerType
from windlass.backends.saving import SaveMinutes, SaveSteps
from windlass.backends.sharding import Sharding, auto_sharding
from windlass.backends.trl.lora import REQUEST_NAMES, Lora, LoraSettings, continued
from windlass.backends.trl.methods import Name


class TRLSettings(LoraSettings, frozen=True, forbid_unknown_fields=True):
    """Settings of a TRL job; what is left out keeps its default.

    Those of the adapter are of `TRLPeftConfig`. `lora` false trains every weight. `alpha` is
    twice the rank unless set. `load_in_4bit` is QLoRA, and needs a GPU. `teacher` is the name of
    a model of the project. `sharding` goes by the size of the model unless it is said.
    `save_steps` and `save_minutes` are of the state that an interrupted job goes on from.
    """

    lora: bool = True
    max_length: MaxLength | None = None
    max_steps: MaxSteps | None = None
    lr_scheduler: Scheduler | None = None
    warmup_ratio: Ratio | None = None
    weight_decay: WeightDecay | None = None
    gradient_checkpointing: bool | None = None
    assistant_only_loss: bool | None = None
    packing: bool | None = None
    beta: Divergence | None = None
    desirable_weight: Weight | None = None
    undesirable_weight: Weight | None = None
    center_rewards_coefficient: Weight | None = None
    teacher: Name | None = None
    max_completion_length: MaxCompletion | None = None
    temperature: Temperature | None = None
    num_nodes: Nodes | None = None
    save_steps: SaveSteps | None = None
    save_minutes: SaveMinutes | None = None
    sharding: Literal["none"] | Sharding | None = None

    def adapter(
        self,
        begins_with: AdapterShape | None = None,
        targets: Sequence[str] = (),
        *,
        at: str,
    ) -> Lora | None:
        """Returns the adapter asked for; raises InvalidConfig for its settings without it.

        One that `begins_with` another has its settings, unless others are given; any other is on
        the layers that `targets` names.
        """
        given = {name: value for name, value in self._given().items() if name in REQUEST_NAMES}
        if not self.lora:
            if begins_with is not None:
                raise InvalidConfig(
                    f"{at}.lora",
                    "must be true, since the job's model is an adapter; to train every weight, "
                    "take one that was exported as merged",
                )
            for name in given:
                raise InvalidConfig(f"{at}.{name}", "applies only to LoRA, and `lora` is false")
            return None
        if "rank" in given:
            given.setdefault("alpha", 2 * given["rank"])
        if begins_with is not None:
            return continued(begins_with, given, at=at)
        if targets:
            given.setdefault("target_modules", list(targets))
        return Lora(**{REQUEST_NAMES[name]: value for name, value in given.items()})

    def choose_sharding(self, sizing: Sizing, *, at: str) -> Sharding | None:
        """The sharding of the training over GPUs; raises InvalidConfig where there is none."""
        processes = (self.num_nodes or 1) * sizing.processes
        asked = self.sharding
        is_quantized = self._given().get("load_in_4bit")
        if asked is None and not is_quantized:
            return auto_sharding(sizing.model_bytes, lora=self.lora, processes=processes)
        if asked is None or asked == "none":
            return None
        if is_quantized:
            raise InvalidConfig(f"{at}.sharding", "cannot be combined with load_in_4bit")
        if processes == 1:
            raise InvalidConfig(f"{at}.sharding", "needs several GPUs, and the job asks for one")
        return asked

    def check(self, trainer: TrainerType, *, at: str) -> None:
        """Raises InvalidConfig for what the document of a method cannot tell from unset."""
        if trainer is TrainerType.DPO and self.beta is not None:
            raise InvalidConfig(f"{at}.beta", "of dpo is method.dpo.hyperparameters.beta")
        if trainer is TrainerType.DISTILLATION and self.max_length is not None:
            raise InvalidConfig(f"{at}.max_length", "is max_completion_length in distillation")
        if trainer in ONLINE and self.max_length is not None:
            raise InvalidConfig(f"{at}.max_length", f"is max_completion_length in {trainer}")

    def settings(self) -> dict[str, Any]:
        """The settings of the training itself, by the names of `TRLConfig`."""
        return {
            name: value
            for name, value in self._given().items()
            if name not in REQUEST_NAMES and name not in ("lora", "sharding")
        }

    def _given(self) -> dict[str, Any]:
        return {n: v for n, v in msgspec.structs.asdict(self).items() if v is not None}
