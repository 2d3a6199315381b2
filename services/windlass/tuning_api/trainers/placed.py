"""Trainers of several base models as one."""

import asyncio
from collections.abc import Mapping, Sequence

from windlass.tuning_api.trainers.port import RunNotOpen, Trainer
from windlass.tuning_api.trainers.records import (
    Operation,
    OperationFailed,
    Outcome,
    Run,
    SampleRequest,
    Samples,
    TrainableModel,
)
from windlass.tuning_api.trainers.seats import SeatAwaited


class TrainersByModel:
    """Implements `Trainer`: each run and each prompt is for the trainer that has its base model.

    What has a model of its own is for a trainer of its own.
    """

    def __init__(self, trainers: Sequence[Trainer], dedicated: Trainer):
        self._dedicated = dedicated
        self._models = tuple(model for one in trainers for model in one.base_models)
        self._trainers: Mapping[str, Trainer] = {
            model.name: one for one in trainers for model in one.base_models
        }
        # By run, one that waits for room too, and by session of what samples for one.
        self._runs: dict[str, Trainer] = {}

    @property
    def base_models(self) -> Sequence[TrainableModel]:
        """The models of all of them."""
        return self._models

    async def open(self, run: Run) -> None:
        """Opens a run with the trainer of its base model."""
        trainer = self._trainers[run.base_model] if run.rank else self._dedicated
        try:
            await trainer.open(run)
        except SeatAwaited:
            # It has a place in line, which it gives up by being closed.
            self._runs[run.id] = trainer
            raise
        self._runs[run.id] = trainer

    async def execute(self, run_id: str, operations: Sequence[Operation]) -> Sequence[Outcome]:
        """Carries out operations with the run's trainer."""
        trainer = self._runs.get(run_id)
        if trainer is None:
            raise RunNotOpen(run_id)
        return await trainer.execute(run_id, operations)

    async def sample(self, request: SampleRequest) -> Samples | OperationFailed:
        """Continues a prompt with the trainer of its base model."""
        if request.session_id:
            self._runs[request.session_id] = self._dedicated
            return await self._dedicated.sample(request)
        return await self._trainers[request.base_model].sample(request)

    async def close(self, run_id: str) -> None:
        """Has the run's trainer forget it, or a session's samplers end by the session's id."""
        if trainer := self._runs.pop(run_id, None):
            await trainer.close(run_id)

    async def stop(self) -> None:
        """Ends all of them."""
        every = [*self._trainers.values(), self._dedicated]
        await asyncio.gather(*(one.stop() for one in every))
