"""The way back of a run whose trainer was lost: its last saved state, and its log after that."""

from windlass.api.tuning.v1 import tuning_pb2 as pb
from windlass.core import telemetry
from windlass.core.errors import InvalidArgument
from windlass.core.killpoints import reach
from windlass.core.objects import ObjectNotFound
from windlass.tuning.blobs import Blobs
from windlass.tuning.execution.conversion import converted, is_computed
from windlass.tuning.execution.folders import CheckpointFolders
from windlass.tuning.in_engine.models import RunModels
from windlass.tuning.storage.checkpoints import prefix_of
from windlass.tuning.storage.execution import ExecutionStore, Row
from windlass.tuning_api.trainers.port import Trainer
from windlass.tuning_api.trainers.records import (
    ForwardBackward,
    LoadState,
    OperationFailed,
    OptimStep,
)

log = telemetry.logger("tuning")


class Replays:
    """Brings opened runs to where their rows say that they are."""

    def __init__(
        self, store: ExecutionStore, trainer: Trainer, blobs: Blobs, folders: CheckpointFolders
    ):
        self._store = store
        self._trainer = trainer
        self._blobs = blobs
        self._folders = folders
        self._models = RunModels(trainer.base_models)

    async def bring_back(self, run: Row) -> bool:
        """Returns False where a part of the way is gone. Raises TrainerLost, RunNotOpen."""
        try:
            if run.state_checkpoint_id and not await self._load(run):
                return False
            return not run.is_dirty or await self._replay(run)
        except ObjectNotFound as error:
            log.error("tuning_replay_impossible", run_id=run.id, exc_info=error)
            return False

    async def _load(self, run: Row) -> bool:
        prefix = prefix_of(run.project_id, run.state_checkpoint_id)
        async with self._folders.read(prefix) as folder:
            [outcome] = await self._trainer.execute(run.id, [LoadState(folder)])
        return not isinstance(outcome, OperationFailed)

    async def _replay(self, run: Row) -> bool:
        place = run.state_place
        if place == run.places:
            # It changed by what has no place.
            return False
        while place < run.places:
            rows = await self._store.since_state(run, place)
            if [row.place for row in rows] != list(range(place + 1, place + 1 + len(rows))):
                return False
            if not rows:
                return False
            wishes = [wish for row in rows if (wish := await self._wish(run, row)) is not None]
            if wishes:
                await self._trainer.execute(run.id, wishes)
            place = rows[-1].place
        reach("tuning.replayed")
        log.info("tuning_replayed", run_id=run.id, operations=run.places - run.state_place)
        return True

    async def _wish(self, run: Row, row: Row) -> ForwardBackward | OptimStep | None:
        """A computation that changes the run; None for another, and for what was refused."""
        content = await self._blobs.get(row.body, row.body_key)
        body = pb.OperationBody.FromString(content)
        model = self._models.of(run)
        if model is None or not is_computed(body):
            # Of what was saved nothing is left to do, and what was loaded is in a state.
            return None
        try:
            wish = converted(body, model, row.id)
        except InvalidArgument:
            return None
        is_change = isinstance(wish, OptimStep) or not wish.is_forward_only
        return wish if is_change else None
