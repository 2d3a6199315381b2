"""Trainers and engines as one trainer."""

from collections.abc import Sequence

from windlass.tuning.in_engine.trainer import EngineTrainer
from windlass.tuning_api.trainers.port import Trainer
from windlass.tuning_api.trainers.records import (
    Operation,
    OperationFailed,
    Outcome,
    Run,
    SampleRequest,
    Samples,
    TrainableModel,
)


class TrainersAndEngines:
    """Implements `Trainer`: runs in engines are for these, and all else for a trainer."""

    def __init__(self, trainer: Trainer, engines: EngineTrainer):
        self._trainer = trainer
        self._engines = engines

    @property
    def base_models(self) -> Sequence[TrainableModel]:
        """The trainer's models; those of engines are their projects'."""
        return self._trainer.base_models

    async def open(self, run: Run) -> None:
        """Opens a run where it is trained."""
        await (self._engines if run.is_in_engine else self._trainer).open(run)

    async def execute(self, run_id: str, operations: Sequence[Operation]) -> Sequence[Outcome]:
        """Carries out operations where the run is."""
        one = self._engines if self._engines.holds(run_id) else self._trainer
        return await one.execute(run_id, operations)

    async def sample(self, request: SampleRequest) -> Samples | OperationFailed:
        """Continues a prompt with the trainer."""
        return await self._trainer.sample(request)

    async def close(self, run_id: str) -> None:
        """Closes a run or a session where it is."""
        await (self._engines if self._engines.holds(run_id) else self._trainer).close(run_id)

    async def stop(self) -> None:
        """Ends all."""
        await self._engines.stop()
        await self._trainer.stop()
