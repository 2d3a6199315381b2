"""The trainer of one run of all parameters, and the sampler of such runs, behind the port."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from windlass.tuning_api.trainers import records
from windlass.tuning_api.trainers.port import RunNotOpen, TrainerLost
from windlass_agent.tuning.endings import RunClosed
from windlass_agent.tuning.full.engine import FullEngine
from windlass_agent.tuning.full.snapshots import Snapshots
from windlass_agent.tuning.network.base import UnfitBase
from windlass_agent.tuning.requests.refusal import TuningRefused
from windlass_agent.tuning.trainer import conversion

T = TypeVar("T")


class FullTrainer:
    """Implements `Trainer` for one run in its life; samples from whole models."""

    def __init__(
        self, model: records.TrainableModel, folder: Path, engine: FullEngine, snapshots: Snapshots
    ):
        self._model = model
        self._folder = folder
        self._engine = engine
        self._snapshots = snapshots
        self._run_id = ""
        self._refused: records.OperationFailed | None = None
        self._has_ended = False
        # Torch keeps much by thread.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="tuning")

    @property
    def base_models(self) -> Sequence[records.TrainableModel]:
        """The model, as its files describe it: it is loaded for the run."""
        return [self._model]

    async def open(self, run: records.Run) -> None:
        """Loads the model, whose every parameter is the run's."""
        if self._run_id == run.id:
            return
        if self._run_id:
            raise TrainerLost("this trainer has had another run")
        self._run_id = run.id
        try:
            seed = conversion.full_seed(run)
            await self._done(lambda: self._engine.begin(seed))
        except TuningRefused as refusal:
            self._refused = conversion.failed(refusal)

    async def execute(
        self, run_id: str, operations: Sequence[records.Operation]
    ) -> Sequence[records.Outcome]:
        """Carries out one after another."""
        if run_id != self._run_id:
            raise RunNotOpen(run_id)
        if self._refused is not None:
            return [self._refused] * len(operations)
        return [await self._outcome(one) for one in operations]

    async def sample(
        self, request: records.SampleRequest
    ) -> records.Samples | records.OperationFailed:
        """Continues a prompt with a saved model."""
        try:
            asked = conversion.prompt(request)
            async with self._snapshots.of(request.adapter or self._folder) as thread:
                # The model is what was saved: no adapter is on it.
                found = await asyncio.wrap_future(thread.sample(replace(asked, adapter=None)))
        except (UnfitBase, OSError) as error:
            refused = TuningRefused("state_not_found", f"the model cannot be read: {error}")
            return conversion.failed(refused)
        except TuningRefused as refusal:
            return conversion.failed(refusal)
        except RunClosed as error:
            raise TrainerLost from error
        return conversion.samples(found, request)

    async def close(self, run_id: str) -> None:
        """Does nothing: whoever had it opened ends this process."""

    async def park(self) -> int:
        """Frees the device once what waits has ended; returns the bytes. Raises TrainerLost."""
        async with self._snapshots.let_go():
            return await self._done(self._engine.park)

    async def restore(self) -> None:
        """Takes the device again. Raises TrainerLost."""
        await self._done(self._engine.restore)

    async def stop(self) -> None:
        """Ends after the operation that it is at."""
        self._has_ended = True
        await self._snapshots.stop()
        # Where another process is lost already, all have ended.
        with suppress(RuntimeError):
            await self._on_the_thread(self._engine.end)
        self._thread.shutdown()

    async def _outcome(self, asked: records.Operation) -> records.Outcome:
        try:
            return await self._done(
                lambda: conversion.outcome(self._engine.do(conversion.operation(asked)))
            )
        except TuningRefused as refusal:
            return conversion.failed(refusal)

    async def _done(self, work: Callable[[], T]) -> T:
        if self._has_ended:
            raise TrainerLost("the trainer has ended")
        try:
            return await self._on_the_thread(work)
        except RuntimeError as error:
            raise TrainerLost("another process of the run is lost") from error

    async def _on_the_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)
