"""`method` of a job: OpenAI's, each with its hyperparameters."""

from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from windlass.backends.hyperparameters import Preference, Supervised
from windlass.backends.methods import OPENAI
from windlass.backends.reinforcement import Reinforcement
from windlass.core.errors import InvalidArgument

Hyperparameters = Supervised | Preference | Reinforcement


class SupervisedMethod(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Configuration of the supervised method."""

    hyperparameters: Supervised | None = None


class DpoMethod(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Configuration of the DPO method."""

    hyperparameters: Preference | None = None


class ReinforcementMethod(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Configuration of the reinforcement method; `grader` is one of `windlass.graders`."""

    # Its own parser reads it: a script in it is long, and its errors say more.
    grader: msgspec.Raw
    hyperparameters: Reinforcement | None = None


class Method(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Method of training."""

    # Checked where the method is chosen, in a sentence that lists them.
    type: Annotated[str, Meta(max_length=64, extra_json_schema={"enum": list(OPENAI)})]
    supervised: SupervisedMethod | None = None
    dpo: DpoMethod | None = None
    reinforcement: ReinforcementMethod | None = None

    def __post_init__(self) -> None:
        for name in OPENAI:
            if name != self.type and self.type in OPENAI and getattr(self, name) is not None:
                raise InvalidArgument(
                    f"Only method.{self.type} may be configured, since method.type is {self.type}.",
                    param="method",
                )

    @property
    def hyperparameters(self) -> Hyperparameters | None:
        """The hyperparameters of the chosen type."""
        chosen = getattr(self, self.type) if self.type in OPENAI else None
        given: Hyperparameters | None = chosen.hyperparameters if chosen is not None else None
        return given
