"""What a request may set beyond OpenAI's hyperparameters (`extra_body.windlass.config`)."""

from typing import Any

import msgspec
from msgspec import Struct

from windlass.backends.backend import InvalidConfig
from windlass.backends.trl_document import Lora, MaxSteps, Nodes, Ratio, Scheduler, WeightDecay
from windlass.backends.trl_methods import Alpha, Dropout, MaxLength, Rank, TargetModules

_ADAPTER_FIELDS = {
    "rank": "r",
    "alpha": "alpha",
    "dropout": "dropout",
    "target_modules": "target_modules",
    "use_rslora": "use_rslora",
    "use_dora": "use_dora",
}


class Extra(Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of a TRL job; what is left out keeps its default.

    `lora` false trains every weight. `alpha` is twice the rank unless set.
    """

    lora: bool = True
    rank: Rank | None = None
    alpha: Alpha | None = None
    dropout: Dropout | None = None
    target_modules: TargetModules | None = None
    use_rslora: bool | None = None
    use_dora: bool | None = None
    max_length: MaxLength | None = None
    max_steps: MaxSteps | None = None
    lr_scheduler: Scheduler | None = None
    warmup_ratio: Ratio | None = None
    weight_decay: WeightDecay | None = None
    gradient_checkpointing: bool | None = None
    assistant_only_loss: bool | None = None
    packing: bool | None = None
    num_nodes: Nodes | None = None

    def adapter(self, *, at: str) -> Lora | None:
        """Returns the adapter asked for; raises InvalidConfig for its settings without it."""
        given = {name: value for name, value in self._given().items() if name in _ADAPTER_FIELDS}
        if not self.lora:
            for name in given:
                raise InvalidConfig(f"{at}.{name}", "applies to LoRA alone, and `lora` is false")
            return None
        if self.rank is not None:
            given.setdefault("alpha", 2 * self.rank)
        return Lora(**{_ADAPTER_FIELDS[name]: value for name, value in given.items()})

    def settings(self) -> dict[str, Any]:
        """Returns what was given of the training itself, by the names of `TRLConfig`."""
        return {
            name: value
            for name, value in self._given().items()
            if name not in _ADAPTER_FIELDS and name != "lora"
        }

    def _given(self) -> dict[str, Any]:
        return {n: v for n, v in msgspec.structs.asdict(self).items() if v is not None}
