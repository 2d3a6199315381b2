"""Bounds of runs that train all parameters of a model."""

from dataclasses import dataclass
from typing import Any

from windlass.core.config.tuning import TuningSection
from windlass.core.errors import FailedPrecondition, InvalidArgument
from windlass.tuning.domain import FULL, PROCESSES, REPLICAS, count_option, option
from windlass.tuning_api.trainers.records import TrainableModel

# In float32: a weight, its gradient, two moments, and the gradients before an operation that adds
# to them, which come back where it is refused.
PARAMETER_BYTES = 4 + 4 + 2 * 4 + 4
# Of a sampler: a weight.
SAMPLED_PARAMETER_BYTES = 4


def is_full(settings: dict[str, Any]) -> bool:
    """True for settings of a run of all parameters, which has no rank."""
    return settings.get("rank") == 0


@dataclass(frozen=True, slots=True)
class FullParameterBounds:
    """Bounds that the installation sets for such runs."""

    trainers: int
    processes: int
    process_bytes: int

    @classmethod
    def of(cls, settings: TuningSection) -> "FullParameterBounds":
        """Reads them from the configuration."""
        return cls(
            settings.full_parameter_trainers,
            settings.full_parameter_processes,
            settings.full_parameter_bytes,
        )

    def require(
        self, model: TrainableModel, settings: dict[str, Any], metadata: dict[str, Any]
    ) -> None:
        """Raises InvalidArgument or FailedPrecondition for a run that is not to be begun."""
        wished, samplers = (count_option(metadata, one) for one in (PROCESSES, REPLICAS))
        if not is_full(settings):
            if option(metadata, FULL):
                raise InvalidArgument(
                    f"The checkpoint is one of an adapter, and the session has {FULL}.",
                    param="path",
                )
            if wished or samplers:
                needing = PROCESSES if wished else REPLICAS
                raise InvalidArgument(f"{needing} needs {FULL}.", param="user_metadata")
            return
        if not self.trainers:
            raise FailedPrecondition(
                "Nothing here trains all parameters: tuning.full_parameter_trainers is 0.",
                reason="full_parameters_not_offered",
                param="user_metadata",
            )
        if wished > self.processes:
            raise InvalidArgument(
                f"{PROCESSES} is {wished}, and at most {self.processes} train one model here.",
                param="user_metadata",
            )
        if samplers > self.trainers:
            raise InvalidArgument(
                f"{REPLICAS} is {samplers}, and at most {self.trainers} sample for one session "
                "here.",
                param="user_metadata",
            )
        self._require_memory(model, max(wished, 1))

    def _require_memory(self, model: TrainableModel, processes: int) -> None:
        needed = -(-model.parameters * PARAMETER_BYTES // processes)
        if needed > self.process_bytes:
            raise FailedPrecondition(
                f"All {model.parameters:,} parameters of {model.name} with gradients and moments "
                f"take {needed:,} bytes in each of {processes} processes; "
                f"{self.process_bytes:,} are allowed (tuning.full_parameter_bytes).",
                reason="full_parameters_too_large",
                param="base_model",
            )
