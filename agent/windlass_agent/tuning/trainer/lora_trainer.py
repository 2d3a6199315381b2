"""The trainer of adapters: one engine for each base model, on a thread of its own."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar

from windlass.tuning_api.trainers import records
from windlass.tuning_api.trainers.port import RunNotOpen, TrainerLost
from windlass_agent.tuning.endings import RunClosed
from windlass_agent.tuning.requests.refusal import TuningRefused
from windlass_agent.tuning.trainer import conversion
from windlass_agent.tuning.trainer.driver import EngineThread

T = TypeVar("T")


@dataclass(frozen=True)
class TrainedBase:
    """A base model as clients see it, and the engine that trains on it."""

    model: records.TrainableModel
    thread: EngineThread


class LoraTrainer:
    """Implements `Trainer`: adapters of many tenants, in passes that they share."""

    def __init__(self, bases: Sequence[TrainedBase]):
        self._bases: Mapping[str, TrainedBase] = {base.model.name: base for base in bases}
        self._runs: dict[str, EngineThread] = {}
        # Runs that cannot be; each of their operations says why.
        self._refused: dict[str, records.OperationFailed] = {}

    @property
    def base_models(self) -> Sequence[records.TrainableModel]:
        """The models that were loaded."""
        return [base.model for base in self._bases.values()]

    async def open(self, run: records.Run) -> None:
        """Makes the run's adapter."""
        if run.id in self._runs or run.id in self._refused:
            return
        try:
            thread = self._thread(run.base_model)
            await asyncio.to_thread(thread.open, run.id, conversion.run_spec(run))
        except TuningRefused as refusal:
            self._refused[run.id] = conversion.failed(refusal)
            return
        except RunClosed as error:
            raise TrainerLost from error
        self._runs[run.id] = thread

    async def execute(
        self, run_id: str, operations: Sequence[records.Operation]
    ) -> Sequence[records.Outcome]:
        """Queues all of them at once, so that those up to a barrier share passes."""
        if run_id in self._refused:
            return [self._refused[run_id]] * len(operations)
        thread = self._runs.get(run_id)
        if thread is None:
            raise RunNotOpen(run_id)
        _check(thread)
        try:
            # Judging and copying thousands of tokens takes its time.
            queued = await asyncio.to_thread(
                lambda: [_queued(thread, run_id, operation) for operation in operations]
            )
            return [await _outcome(one) for one in queued]
        except RunClosed as error:
            _check(thread)
            raise RunNotOpen(run_id) from error

    async def sample(
        self, request: records.SampleRequest
    ) -> records.Samples | records.OperationFailed:
        """Queues the prompt."""
        try:
            thread = self._thread(request.base_model)
            found = await asyncio.wrap_future(thread.sample(conversion.prompt(request)))
        except TuningRefused as refusal:
            return conversion.failed(refusal)
        except RunClosed as error:
            raise TrainerLost from error
        return conversion.samples(found, request)

    async def close(self, run_id: str) -> None:
        """Drops the adapter, and what still waits for it."""
        self._refused.pop(run_id, None)
        if thread := self._runs.pop(run_id, None):
            thread.engine.close(run_id)

    async def park(self) -> int:
        """Frees the device once what waits has ended; returns the bytes. Raises TrainerLost."""
        return sum([await _switched(base.thread, base.thread.park) for base in self._all()])

    async def restore(self) -> None:
        """Takes the device again. Raises TrainerLost."""
        for base in self._all():
            await _switched(base.thread, base.thread.restore)

    async def stop(self) -> None:
        """Ends every thread after the pass that it is at."""
        for base in self._bases.values():
            await asyncio.to_thread(base.thread.stop)

    def _all(self) -> list[TrainedBase]:
        return list(self._bases.values())

    def _thread(self, base_model: str) -> EngineThread:
        base = self._bases.get(base_model)
        if base is None:
            raise TuningRefused("unknown_base_model", "the base model is not here")
        _check(base.thread)
        return base.thread


def _check(thread: EngineThread) -> None:
    if not thread.is_alive:
        raise TrainerLost("the engine's thread has ended")


async def _switched(thread: EngineThread, switch: "Callable[[], Future[T]]") -> T:
    _check(thread)
    try:
        return await asyncio.wrap_future(switch())
    except RunClosed as error:
        raise TrainerLost from error


def _queued(
    thread: EngineThread, run_id: str, operation: records.Operation
) -> "Future[Any] | TuningRefused":
    try:
        return thread.submit(run_id, conversion.operation(operation))
    except TuningRefused as refusal:
        return refusal


async def _outcome(queued: "Future[Any] | TuningRefused") -> records.Outcome:
    try:
        if isinstance(queued, TuningRefused):
            raise queued
        return conversion.outcome(await asyncio.wrap_future(queued))
    except TuningRefused as refusal:
        return conversion.failed(refusal)
