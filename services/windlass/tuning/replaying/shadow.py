"""A run beside a run: the same adapter on the same trainer, of which no row knows."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from windlass.api.tuning.v1 import tuning_pb2 as pb
from windlass.core.errors import InvalidArgument, NotFound, Unavailable
from windlass.core.ids import new_id
from windlass.core.objects import ObjectNotFound
from windlass.tuning.domain import Reader, parse_path
from windlass.tuning.execution.conversion import (
    computed_result,
    converted,
    failed_with,
    is_computed,
)
from windlass.tuning.execution.folders import CheckpointFolders, digest_of_folder
from windlass.tuning.execution.runs import as_run
from windlass.tuning.replaying.planning import Beginning
from windlass.tuning.storage.checkpoints import WeightsStore, prefix_of
from windlass.tuning_api.trainers.port import RunNotOpen, Trainer, TrainerLost
from windlass.tuning_api.trainers.records import (
    LoadState,
    Operation,
    OperationFailed,
    Outcome,
    SaveAdapter,
    SaveState,
    TrainableModel,
)

Row = sa.Row[Any]


class SourceGone(Exception):
    """A checkpoint that was loaded then is no longer there."""


@dataclass(frozen=True, slots=True)
class Retraced:
    """Outcome of an operation beside the run: its result, or the digest of its files."""

    result: pb.Result | None = None
    weights: bytes | None = None


class Shadow:
    """Carries out operations of a run a second time; the run is not touched."""

    def __init__(
        self,
        run: Row,
        model: TrainableModel,
        trainer: Trainer,
        folders: CheckpointFolders,
        checkpoints: WeightsStore,
    ):
        self._run = run
        self._model = model
        self._trainer = trainer
        self._folders = folders
        self._checkpoints = checkpoints
        self._id = ""

    async def begin(self, beginning: Beginning) -> None:
        """Opens it where a replay begins; raises SourceGone, Unavailable `trainer_lost`."""
        await self.close()
        self._id = new_id("replay-")
        try:
            await self._trainer.open(replace(as_run(self._run), id=self._id))
        except TrainerLost as error:
            raise _lost() from error
        if beginning.state is not None:
            prefix = prefix_of(self._run.project_id, beginning.state.id)
            await self._load(prefix, with_optimizer=True)
        elif beginning.opening is not None and beginning.opening.from_path:
            opening = beginning.opening
            await self._load_path(opening.from_path, opening.with_optimizer, beginning.loaded)
        else:
            # Tells whether the trainer has room for it.
            await self._saved(SaveState)

    async def carry_out(self, row: Row, body: pb.OperationBody) -> Retraced:
        """Does what an operation asked of a run; raises SourceGone, Unavailable `trainer_lost`."""
        kind = body.WhichOneof("body")
        if is_computed(body):
            try:
                wish = converted(body, self._model)
            except InvalidArgument as error:
                return Retraced(failed_with(error.message, error.reason, "user"))
            return Retraced(computed_result(await self._execute(wish)))
        if kind == "load_state":
            if row.weights_digest is None:
                # It was refused, whatever has the path now.
                return Retraced()
            asked = body.load_state
            await self._load_path(asked.path, asked.with_optimizer, row.loaded_checkpoint_id)
            return Retraced(weights=await self._saved(SaveState))
        if kind in ("save_state", "save_sampler", "save_external"):
            files = SaveState if kind == "save_state" else SaveAdapter
            return Retraced(weights=await self._saved(files))
        return Retraced()

    @asynccontextmanager
    async def state(self) -> AsyncIterator[Path]:
        """Yields a folder with all that it is now."""
        async with self._folders.empty() as folder:
            await self._require(SaveState(folder))
            yield folder

    async def close(self) -> None:
        """Has the trainer forget it."""
        if self._id:
            await self._trainer.close(self._id)
            self._id = ""

    async def _saved(self, kind: type[SaveState | SaveAdapter]) -> bytes:
        async with self._folders.empty() as folder:
            await self._require(kind(folder))
            return await asyncio.to_thread(digest_of_folder, folder)

    async def _load_path(self, path: str, with_optimizer: bool, loaded: str) -> None:
        """Loads what has a path; raises SourceGone where that is not what was loaded then."""
        reader = Reader(self._run.organization_id, self._run.project_id)
        try:
            found = await self._checkpoints.find(reader, parse_path(path))
        except NotFound as error:
            raise SourceGone(path) from error
        # Nobody noted it before there were notes.
        if loaded not in ("", found.id):
            raise SourceGone(path)
        prefix = prefix_of(found.project_id, found.id)
        await self._load(prefix, with_optimizer=with_optimizer)

    async def _load(self, prefix: str, *, with_optimizer: bool) -> None:
        try:
            async with self._folders.read(prefix) as folder:
                await self._require(LoadState(folder, with_optimizer))
        except ObjectNotFound as error:
            raise SourceGone(prefix) from error

    async def _require(self, wish: Operation) -> None:
        outcome = await self._execute(wish)
        if isinstance(outcome, OperationFailed):
            raise Unavailable(
                f"The trainer refused the replay: {outcome.message}", reason="replay_refused"
            )

    async def _execute(self, wish: Operation) -> Outcome:
        try:
            # One by one: what shares a pass with others may differ in its last bits.
            [outcome] = await self._trainer.execute(self._id, [wish])
        except (TrainerLost, RunNotOpen) as error:
            raise _lost() from error
        return outcome


def _lost() -> Unavailable:
    return Unavailable("The trainer was lost; ask again.", reason="trainer_lost")
