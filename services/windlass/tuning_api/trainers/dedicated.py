"""Trainers of which each has one run, beside samplers of which each serves one session."""

import asyncio
from collections.abc import Callable, Sequence

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
from windlass.tuning_api.trainers.session_samplers import SessionSamplers


class DedicatedTrainers:
    """Implements `Trainer`: has one made for each run, and ends it; prompts are for the samplers.

    What is asked for bounds the trainers; samplers have a bound of their own, since they hold
    nothing that is not saved.
    """

    def __init__(self, make_trainer: Callable[[Run], Trainer], samplers: SessionSamplers):
        self._make_trainer = make_trainer
        self._samplers = samplers
        self._trainers: dict[str, Trainer] = {}

    @property
    def base_models(self) -> Sequence[TrainableModel]:
        """Returns none: others have the same models, and name them."""
        return ()

    async def open(self, run: Run) -> None:
        """Has the run's trainer made and the run opened there; raises TrainerLost."""
        if run.id not in self._trainers:
            self._trainers[run.id] = self._make_trainer(run)
        await self._trainers[run.id].open(run)

    async def execute(self, run_id: str, operations: Sequence[Operation]) -> Sequence[Outcome]:
        """Carries out operations with the run's trainer; raises RunNotOpen, TrainerLost."""
        trainer = self._trainers.get(run_id)
        if trainer is None:
            raise RunNotOpen(run_id)
        return await trainer.execute(run_id, operations)

    async def sample(self, request: SampleRequest) -> Samples | OperationFailed:
        """Continues a prompt with a sampler of its session. Raises TrainerLost."""
        return await self._samplers.sample(request)

    async def close(self, run_id: str) -> None:
        """Ends the run's trainer, and its session's samplers once they have answered.

        The id of a session alone ends its samplers: its runs may have been closed before.
        """
        if trainer := self._trainers.pop(run_id, None):
            await trainer.stop()
        await self._samplers.end(run_id.partition(":")[0])

    async def stop(self) -> None:
        """Ends all of them."""
        every = tuple(self._trainers.values())
        self._trainers.clear()
        await asyncio.gather(self._samplers.stop(), *(one.stop() for one in every))
