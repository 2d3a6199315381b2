"""The TRL backend: supervised and preference fine-tuning with trl 1.16.0."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import msgspec

from windlass.backends import trl_flags
from windlass.backends.backend import InvalidConfig, LLMBackend, RenderContext, Sizing
from windlass.backends.hyperparameters import examples_per_pass, resolve
from windlass.backends.registry import register_backend
from windlass.backends.trl_config import TrainerType, TRLConfig
from windlass.backends.trl_extra import Extra
from windlass.backends.typed import decode

ENTRY_MODULE = "windlass_agent.runner.trl_entry"
EXTRA_PATH = "windlass.config"

_SFT_ALONE = ("assistant_only_loss", "packing")


@register_backend
@dataclass(frozen=True)
class TRLBackend(LLMBackend):
    """A training with TRL, as its typed configuration describes it."""

    config: TRLConfig

    name: ClassVar[str] = "trl"
    framework: ClassVar[str] = "trl"
    schema_version: ClassVar[int] = 1

    @classmethod
    def from_openai(
        cls,
        *,
        method: str,
        hyperparameters: Mapping[str, Any],
        seed: int,
        sizing: Sizing,
        extra: Mapping[str, Any],
    ) -> Self:
        """Builds a configuration; raises InvalidConfig with the request's path of the field.

        `extra` is the request's `windlass.config`: see `trl_extra.Extra`.
        """
        asked = decode(extra, Extra, at=EXTRA_PATH)
        peft = asked.adapter(at=EXTRA_PATH)
        resolved = resolve(method, hyperparameters, lora=peft is not None, sizing=sizing)
        batch_size = max(1, resolved.batch_size // (asked.num_nodes or 1))
        per_pass = examples_per_pass(sizing, batch_size=batch_size)
        document = {
            **asked.settings(),
            "trainer_type": resolved.trainer_type,
            "seed": seed,
            "peft": msgspec.to_builtins(peft),
            "epochs": resolved.epochs,
            "learning_rate": resolved.learning_rate,
            "batch_size": per_pass,
            "gradient_accumulation_steps": batch_size // per_pass,
            "beta": resolved.beta,
        }
        backend = cls(decode(document, TRLConfig, at=""))
        backend._check_trainer(at=f"{EXTRA_PATH}.")
        return backend

    @classmethod
    def from_document(cls, document: Mapping[str, Any], schema_version: int) -> Self:
        """Reads what `to_document` wrote; raises InvalidConfig for anything unknown."""
        if schema_version != cls.schema_version:
            raise InvalidConfig(
                "schema_version",
                f"this release reads version {cls.schema_version}, not {schema_version}",
            )
        backend = cls(decode(document, TRLConfig, at=""))
        backend._check_trainer(at="")
        return backend

    def to_document(self) -> dict[str, Any]:
        """Returns the configuration as JSON values."""
        document: dict[str, Any] = msgspec.to_builtins(self.config)
        return document

    def validate(self) -> None:
        """Raises InvalidConfig for a value out of its bounds, or of another trainer."""
        decode(self.to_document(), TRLConfig, at="")
        self._check_trainer(at="")

    def to_command(self, context: RenderContext | None = None) -> tuple[str, ...]:
        """Returns one process on one node, and torchrun elsewhere: it alone reads `PET_*`."""
        entry = ("-m", ENTRY_MODULE, self.config.trainer_type.value)
        if context is None:
            return ("torchrun", *entry)
        if context.nodes > 1:
            return (context.python, "-m", "torch.distributed.run", *entry)
        return (context.python, *entry)

    def to_args(self, context: RenderContext | None = None) -> list[str]:
        """Returns TRL's flags; without a context, those that depend on no place."""
        return trl_flags.render(self.config, context)

    @property
    def dataset_format(self) -> Literal["chat", "preference"]:
        """The format that the training and validation files must have."""
        return "preference" if self.config.trainer_type is TrainerType.DPO else "chat"

    @property
    def num_nodes(self) -> int | None:
        """Nodes that the configuration asks for; None leaves it to the platform."""
        return self.config.num_nodes

    def _check_trainer(self, *, at: str) -> None:
        config = self.config
        if config.trainer_type is TrainerType.SFT and config.beta is not None:
            raise InvalidConfig(f"{at}beta", "applies to dpo alone")
        for field in _SFT_ALONE:
            if config.trainer_type is TrainerType.DPO and getattr(config, field) is not None:
                raise InvalidConfig(f"{at}{field}", "applies to the supervised method alone")
