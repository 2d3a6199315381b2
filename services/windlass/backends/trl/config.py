"""The TRL backend: KEP-2839's `TRLConfig`, as trl 1.16.0 understands it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import msgspec

from windlass.backends import adapters, methods
from windlass.backends.adapters import AdapterShape
from windlass.backends.backend import (
    DatasetFormat,
    InvalidConfig,
    RenderContext,
    Sizing,
)
from windlass.backends.bounds import MAX_BATCH
from windlass.backends.hyperparameters import METHODS as JOB_METHODS
from windlass.backends.hyperparameters import (
    examples_per_pass,
    least_pass,
    resolve,
    share_of,
)
from windlass.backends.job_backend import JobBackend
from windlass.backends.launcher import torchrun
from windlass.backends.methods import TrainerType
from windlass.backends.registry import register_backend
from windlass.backends.saving import saving_options
from windlass.backends.trl import checks, flags
from windlass.backends.trl.document import TRLTraining, settings
from windlass.backends.trl.document import document as document_of
from windlass.backends.trl.extra import TRLSettings
from windlass.backends.trl.fields import TRLFields
from windlass.backends.trl.flags import TEACHER
from windlass.backends.trl.methods import (
    TRLDistillationConfig,
    TRLSFTConfig,
    TRLTrainerType,
)
from windlass.backends.typed import decode

ENTRY_MODULE = "windlass_agent.runner.trainers.trl.entry"
# TRL has the trainer, and no script for it.
ORPO_MODULE = "windlass_agent.runner.trainers.trl.orpo"
EXTRA_PATH = "windlass.config"
_OF_JOBS = frozenset(TRLTrainerType(kind) for kind in TrainerType)


@register_backend
@dataclass(frozen=True)
class TRLConfig(TRLFields, JobBackend):
    """One TRL training, by the fields of `TRLFields`."""

    name: ClassVar[str] = "trl"
    framework: ClassVar[str] = "trl"
    schema_version: ClassVar[int] = 1
    continues_adapters: ClassVar[bool] = True

    @classmethod
    def from_openai(
        cls,
        *,
        method: str,
        hyperparameters: Mapping[str, Any],
        seed: int,
        sizing: Sizing,
        extra: Mapping[str, Any],
        grader: Mapping[str, Any] | None = None,
        adapter: Mapping[str, Any] | None = None,
    ) -> Self:
        """Builds a configuration; raises InvalidConfig with the request's path of the field.

        `extra` is the request's `windlass.config`: see `extra.TRLSettings`.
        """
        asked = decode(extra, TRLSettings, at=EXTRA_PATH)
        shape = None if adapter is None else AdapterShape.of(adapter)
        peft = asked.adapter(shape, sizing.lora_targets, at=EXTRA_PATH)
        resolved = resolve(method, hyperparameters, lora=peft is not None, sizing=sizing)
        asked.check(resolved.trainer_type, at=EXTRA_PATH)
        least = least_pass(resolved.trainer_type)
        world = (asked.num_nodes or 1) * sizing.processes
        batch_size = share_of(resolved, hyperparameters, method=method, processes=world)
        if resolved.sampling is not None:
            batch_size *= resolved.sampling.generations
        per_pass = examples_per_pass(sizing, batch_size=batch_size, least=least)
        if batch_size > per_pass * MAX_BATCH:
            raise InvalidConfig(
                f"{methods.hyperparameters_of(method)}.batch_size",
                f"makes {batch_size} answers a step; with this model {per_pass * MAX_BATCH} are "
                "possible, so lower it or compute_multiplier",
            )
        document = {
            "beta": resolved.beta,
            "sharding": asked.choose_sharding(sizing, at=EXTRA_PATH),
            **asked.settings(),
            "trainer_type": resolved.trainer_type,
            "seed": seed,
            "peft": msgspec.to_builtins(peft),
            "from_adapter": shape is not None,
            "epochs": resolved.epochs,
            "learning_rate": resolved.learning_rate,
            "batch_size": per_pass,
            "gradient_accumulation_steps": batch_size // per_pass,
            "grader": grader,
            **(resolved.sampling.settings() if resolved.sampling is not None else {}),
        }
        return cls._of(document, at=f"{EXTRA_PATH}.")

    @classmethod
    def from_document(cls, document: Mapping[str, Any], schema_version: int) -> Self:
        """Reads what `to_document` wrote; raises InvalidConfig for anything unknown."""
        cls.check_version(schema_version)
        return cls._of(document, at="")

    def to_document(self) -> dict[str, Any]:
        """Returns the document of a job; raises InvalidConfig for what jobs are not told."""
        self.validate()
        document = document_of(self)
        if self._of(document, at="") != self._spelled_out():
            raise InvalidConfig("config", "sets what a job takes from the platform")
        return document

    def validate(self) -> None:
        """Raises InvalidConfig for a value out of its bounds, or that TRL cannot train with."""
        decode(msgspec.to_builtins(self), TRLConfig, at="")
        checks.check(self)

    def to_command(self, context: RenderContext | None = None) -> tuple[str, ...]:
        """Returns one process on one node, and torchrun elsewhere: it alone reads `PET_*`."""
        self.validate()
        kind = self.trainer_type
        begins = self._beginning(context)
        script = ORPO_MODULE if kind == TRLTrainerType.ORPO else f"trl.scripts.{kind}"
        if context is None or not context.managed:
            return ("torchrun", "-m", script)
        entry: tuple[str, ...] = ("-m", script)
        if kind in _OF_JOBS:
            saving = saving_options(self.save_steps, self.save_minutes)
            entry = ("-m", ENTRY_MODULE, str(kind), *saving, *begins)
        return (context.python, *torchrun(context), *entry)

    def to_args(self, context: RenderContext | None = None) -> list[str]:
        """Returns TRL's flags."""
        self.validate()
        return flags.render(self, context or RenderContext.of_pod())

    @property
    def job_method(self) -> str:
        """The API's method that a job of this configuration has."""
        kind = str(self.trainer_type)
        return next((name for name, trainer in JOB_METHODS.items() if trainer == kind), kind)

    @property
    def dataset_format(self) -> DatasetFormat:
        """The format that a job's trainer reads."""
        return methods.READS.get(str(self.trainer_type), "chat")

    @property
    def companions(self) -> Mapping[str, str]:
        """The teacher of a distillation."""
        if not isinstance(self.method, TRLDistillationConfig):
            return {}
        return {TEACHER: self.method.teacher_model_name_or_path or ""}

    @property
    def libraries(self) -> Mapping[str, str]:
        """bitsandbytes for a base in 4 bits, deepspeed for ZeRO."""
        found = {}
        if self.peft_config is not None and self.peft_config.load_in_4bit:
            found["bitsandbytes"] = "load_in_4bit"
        if self.sharding is not None and self.sharding.startswith("zero"):
            found["deepspeed"] = "sharding"
        return found

    @property
    def grader(self) -> Mapping[str, Any] | None:
        """The grader of a job's answers, where it learns from rewards."""
        return getattr(self.method, "grader", None)

    def _beginning(self, context: RenderContext | None) -> tuple[str, ...]:
        """The option of our entry that names the adapter to begin with."""
        if not self.from_adapter:
            return ()
        if context is None or adapters.ROLE not in context.companions:
            raise InvalidConfig("from_adapter", "requires a job whose model is an adapter")
        return (adapters.OPTION, str(context.companions[adapters.ROLE]))

    def _spelled_out(self) -> Self:
        """The same with its method's settings as a document's reader writes them."""
        method = self.method
        if isinstance(method, TRLSFTConfig):
            method = replace(method, max_length=method.tokens, max_seq_length=None)
        settings: dict[str, Any] = {f"{TRLTrainerType(self.trainer_type)}_config": method}
        return replace(self, **settings)

    @classmethod
    def _of(cls, document: Mapping[str, Any], *, at: str) -> Self:
        training = decode(document, TRLTraining, at="")
        checks.check_document(training, at=at)
        return cls(**settings(training))
