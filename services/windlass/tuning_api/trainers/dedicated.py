"""Trainers of which each has one run, and samplers of which each serves one session."""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

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


@dataclass(eq=False)
class _Sampler:
    trainer: Trainer
    calls: int = 0
    is_leaving: bool = False


class DedicatedTrainers:
    """Implements `Trainer`: has one made for each run, and for each session's prompts; ends them.

    What is asked for bounds the trainers; samplers have a bound here, since they hold nothing that
    is not saved.
    """

    def __init__(
        self,
        make_trainer: Callable[[Run], Trainer],
        make_sampler: Callable[[SampleRequest], Trainer],
        *,
        most_samplers: int,
    ):
        self._make_trainer = make_trainer
        self._make_sampler = make_sampler
        self._most_samplers = most_samplers
        self._trainers: dict[str, Trainer] = {}
        # By session and base model, the least recently used first.
        self._samplers: OrderedDict[tuple[str, str], _Sampler] = OrderedDict()
        self._changed = asyncio.Condition()

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
        """Continues a prompt with the session's sampler; waits for room. Raises TrainerLost."""
        async with self._sampler(request) as trainer:
            return await trainer.sample(request)

    async def close(self, run_id: str) -> None:
        """Ends the run's trainer, and its session's samplers once they have answered.

        The id of a session alone ends its samplers: its runs may have been closed before.
        """
        if trainer := self._trainers.pop(run_id, None):
            await trainer.stop()
        session_id = run_id.partition(":")[0]
        async with self._changed:
            for key, sampler in list(self._samplers.items()):
                if key[0] == session_id:
                    sampler.is_leaving = True
                    await self._end_left(key, sampler)

    async def stop(self) -> None:
        """Ends all of them."""
        every = [*self._trainers.values(), *(one.trainer for one in self._samplers.values())]
        self._trainers.clear()
        self._samplers.clear()
        await asyncio.gather(*(one.stop() for one in every))

    @asynccontextmanager
    async def _sampler(self, request: SampleRequest) -> AsyncIterator[Trainer]:
        key = request.session_id, request.base_model
        async with self._changed:
            while (sampler := await self._found(key, request)) is None:
                await self._changed.wait()
            sampler.calls += 1
        try:
            yield sampler.trainer
        finally:
            async with self._changed:
                sampler.calls -= 1
                await self._end_left(key, sampler)
                self._changed.notify_all()

    async def _found(self, key: tuple[str, str], request: SampleRequest) -> _Sampler | None:
        """The session's sampler, or a new one in the place of one that nobody asks."""
        if (found := self._samplers.get(key)) is not None:
            if found.is_leaving:
                return None
            self._samplers.move_to_end(key)
            return found
        if len(self._samplers) >= self._most_samplers:
            idle = next((one for one, held in self._samplers.items() if not held.calls), None)
            if idle is None:
                return None
            await self._samplers.pop(idle).trainer.stop()
        made = self._samplers[key] = _Sampler(self._make_sampler(request))
        return made

    async def _end_left(self, key: tuple[str, str], sampler: _Sampler) -> None:
        if sampler.is_leaving and not sampler.calls and self._samplers.get(key) is sampler:
            del self._samplers[key]
            await sampler.trainer.stop()
