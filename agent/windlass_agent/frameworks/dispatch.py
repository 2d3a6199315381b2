"""Choice of a TrainJob's strategy by its runtime's framework; unknown ones are left unchanged."""

from collections.abc import Iterator, Mapping
from typing import Protocol

from windlass_agent.frameworks import rendezvous, torchtune, trl
from windlass_agent.frameworks.objects import TrainerSpec, TrainingRuntime, TrainJobRefusal

# Kubeflow Trainer sets these for torchrun.
RESERVED = frozenset(
    {"PET_NNODES", "PET_NPROC_PER_NODE", "PET_NODE_RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT"}
)


class Strategy(Protocol):
    """Handling of a framework's TrainJobs; implemented by modules of this package."""

    def complete(self, trainer: TrainerSpec, runtime: TrainingRuntime) -> TrainerSpec:
        """The trainer as it runs; what is complete already stays as it is."""

    def refusals(self, trainer: TrainerSpec, runtime: TrainingRuntime) -> Iterator[TrainJobRefusal]:
        """Returns the reasons against it."""


STRATEGIES: Mapping[str, Strategy] = {"torchtune": torchtune, "trl": trl}


def complete(trainer: TrainerSpec, runtime: TrainingRuntime) -> TrainerSpec:
    """Returns the trainer as it has to run; of another policy than torch, as it is."""
    if not runtime.is_torch:
        return trainer
    if trainer.fields is None:
        # Without a trainer Kubeflow sets no variable for torchrun.
        trainer = TrainerSpec({})
    if any(refusals(trainer, runtime)):
        # The one who wrote it sees what he wrote.
        return trainer
    if strategy := STRATEGIES.get(runtime.framework):
        trainer = strategy.complete(trainer, runtime)
    return rendezvous.complete(trainer, runtime)


def refusals(trainer: TrainerSpec, runtime: TrainingRuntime) -> Iterator[TrainJobRefusal]:
    """Yields why a trainer cannot run on a runtime."""
    if not runtime.is_torch:
        return
    if taken := sorted(RESERVED & trainer.variables):
        yield TrainJobRefusal(
            "spec.trainer.env", f"{', '.join(taken)}: only Kubeflow Trainer may set them"
        )
    if strategy := STRATEGIES.get(runtime.framework):
        yield from strategy.refusals(trainer, runtime)
