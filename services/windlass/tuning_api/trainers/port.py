"""The port of what trains and samples for the tuning service."""

from collections.abc import Sequence
from typing import Protocol

from windlass.tuning_api.trainers.records import (
    Operation,
    OperationFailed,
    Outcome,
    Run,
    SampleRequest,
    Samples,
    TrainableModel,
)


class RunNotOpen(Exception):
    """The trainer does not hold this run: it was never opened here, closed, or lost."""


class TrainerLost(Exception):
    """The trainer is gone, and with it what it held since each run's last saved state."""


class Trainer(Protocol):
    """Trains runs of many tenants on base models, and samples from what they saved.

    Calls for different runs come at once, and may be computed in one pass; calls for one run come
    one after another. Folders are of this machine, and belong to the caller.
    """

    @property
    def base_models(self) -> Sequence[TrainableModel]:
        """The models that it trains on and samples from; fixed for its life."""
        ...

    async def open(self, run: Run) -> None:
        """Makes a new adapter for the run from its seed; an open run stays as it is.

        A saved state follows as a LoadState. Raises TrainerLost.
        """
        ...

    async def execute(self, run_id: str, operations: Sequence[Operation]) -> Sequence[Outcome]:
        """Carries out operations in order, and answers an outcome for each.

        What a tenant did wrong is an OperationFailed, never an exception. Raises RunNotOpen before
        any effect, TrainerLost.
        """
        ...

    async def sample(self, request: SampleRequest) -> Samples | OperationFailed:
        """Continues a prompt with weights that do not move. Raises TrainerLost."""
        ...

    async def close(self, run_id: str) -> None:
        """Forgets a run, and frees what it held or waited for; an unknown one is closed already."""
        ...

    async def stop(self) -> None:
        """Ends the trainer; whoever waits gets TrainerLost."""
        ...
