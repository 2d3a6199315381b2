"""Operations that open a run, save it and load it."""

import asyncio
from typing import Any

import orjson

from windlass.api.tuning.v1 import tuning_pb2 as pb
from windlass.core.clock import now_seconds
from windlass.core.errors import NotFound, PermissionDenied
from windlass.core.ids import new_id
from windlass.core.objects import ObjectNotFound
from windlass.tuning.blobs import Blobs
from windlass.tuning.domain import (
    CheckpointPath,
    Reader,
    in_engine,
    parse_path,
    sampler_id_of,
    unknown_checkpoint,
)
from windlass.tuning.execution.conversion import failed_result, failed_with
from windlass.tuning.execution.folders import CheckpointFolders, digest_of_folder
from windlass.tuning.inbox import DueOperation
from windlass.tuning.storage.checkpoints import WeightsStore, prefix_of
from windlass.tuning.storage.execution import ExecutionStore, Row
from windlass.tuning.storage.outcomes import Effects, WrittenCheckpoint
from windlass.tuning_api.trainers.port import Trainer, TrainerLost
from windlass.tuning_api.trainers.records import (
    LoadState,
    OperationFailed,
    SaveAdapter,
    SaveState,
)


class StateOperations:
    """Moves weights between the trainer and the object store."""

    def __init__(
        self,
        store: ExecutionStore,
        checkpoints: WeightsStore,
        trainer: Trainer,
        blobs: Blobs,
        folders: CheckpointFolders,
    ):
        self._store = store
        self._checkpoints = checkpoints
        self._trainer = trainer
        self._blobs = blobs
        self._folders = folders

    async def carry_out(
        self, run: Row, operation: DueOperation, body: pb.OperationBody, effects: Effects
    ) -> pb.Result:
        """The result of one operation; what it changes is added to the effects."""
        kind = body.WhichOneof("body")
        if kind == "open_run":
            return await self._open(run, operation, body.open_run, effects)
        if kind == "load_state":
            return await self._load(run, operation, body.load_state, effects)
        if kind == "save_state":
            return await self._save_state(run, operation, body.save_state, effects)
        if kind == "save_sampler":
            return await self._save_sampler(run, operation, body.save_sampler, effects)
        if kind == "save_external":
            return await self._save_external(run, operation, body.save_external, effects)
        if kind == "refused":
            return failed_with(body.refused.message, body.refused.reason, "user")
        return failed_with("The body of the request is gone.", "body_lost")

    async def park(self, run: Row, effects: Effects, operation_id: str = "") -> None:
        """Saves a run under no name, so that a trainer can go on from it.

        Notes the digest of what was saved for the operation that had it saved.
        """
        row = _row(run, "", "", 0, is_for_sampler=False)
        refused = await self._write(run, row, effects, operation_id, replaces=False)
        if refused is None:
            effects.run |= {"is_dirty": False, "state_checkpoint_id": row["id"]}

    async def _open(
        self, run: Row, operation: DueOperation, asked: pb.OpenRun, effects: Effects
    ) -> pb.Result:
        effects.run["is_open"] = True
        if not asked.from_path:
            return pb.Result(opened=pb.OpenedRun(run_id=run.id))
        wish = pb.LoadState(
            path=asked.from_path,
            with_optimizer=asked.with_optimizer,
            lent_checkpoint_id=asked.lent_checkpoint_id,
        )
        return await self._load(run, operation, wish, effects)

    async def _found(self, run: Row, asked: pb.LoadState) -> Row:
        if asked.lent_checkpoint_id:
            if (lent := await self._checkpoints.whole(asked.lent_checkpoint_id)) is None:
                raise unknown_checkpoint(asked.path)
            return lent
        reader = Reader(run.organization_id, run.project_id)
        return await self._checkpoints.find(reader, parse_path(asked.path))

    async def _load(
        self, run: Row, operation: DueOperation, asked: pb.LoadState, effects: Effects
    ) -> pb.Result:
        try:
            found = await self._found(run, asked)
        except NotFound as error:
            return failed_with(error.message, error.reason, "user")
        if _shape(found) != _shape(run):
            message = "The checkpoint is of another base model or rank, or trains other parts."
            return failed_with(message, "foreign_checkpoint", "user")
        try:
            async with self._folders.read(prefix_of(found.project_id, found.id)) as folder:
                wish = LoadState(folder, asked.with_optimizer)
                [outcome] = await self._trainer.execute(run.id, [wish])
        except ObjectNotFound:
            return failed_with("The checkpoint's content is gone.", "checkpoint_lost")
        if isinstance(outcome, OperationFailed):
            return failed_result(outcome)
        # The checkpoint may go, and may be a part of a state alone: the run gets one of its own.
        await self.park(run, effects, operation.id)
        if "state_checkpoint_id" not in effects.run:
            raise TrainerLost("What was loaded could not be saved")
        effects.loaded[operation.id] = found.id
        return pb.Result(loaded=pb.LoadedState(path=asked.path, run_id=run.id))

    async def _save_state(
        self, run: Row, operation: DueOperation, asked: pb.SaveState, effects: Effects
    ) -> pb.Result:
        path = CheckpointPath(run.id, False, asked.name)
        if not asked.overwrite and await self._store.is_taken(path):
            return _taken(path)
        row = _row(run, asked.name, asked.user_metadata, asked.ttl_seconds, is_for_sampler=False)
        refused = await self._write(run, row, effects, operation.id, replaces=asked.overwrite)
        if refused is not None:
            return refused
        effects.run |= {"is_dirty": False, "state_checkpoint_id": row["id"]}
        return pb.Result(saved=pb.SavedCheckpoint(path=str(path)))

    async def _save_sampler(
        self, run: Row, operation: DueOperation, asked: pb.SaveSampler, effects: Effects
    ) -> pb.Result:
        if in_engine(run.user_metadata):
            return await self._save_engine_sampler(run, asked, effects)
        path = CheckpointPath(run.id, True, asked.name)
        if asked.name and await self._store.is_taken(path):
            return _taken(path)
        row = _row(run, asked.name, asked.user_metadata, asked.ttl_seconds, is_for_sampler=True)
        refused = await self._write(run, row, effects, operation.id, replaces=False)
        if refused is not None:
            return refused
        if asked.inflight:
            effects.run["inflight_checkpoint_id"] = row["id"]
        if asked.name:
            return pb.Result(saved=pb.SavedCheckpoint(path=str(path), for_sampler=True))
        return await self._make_sampler(
            run, asked.sampler_number, row["id"], effects, is_inflight=asked.inflight
        )

    async def _save_engine_sampler(
        self, run: Row, asked: pb.SaveSampler, effects: Effects
    ) -> pb.Result:
        """Makes a sampler that is the run's engine; nothing else has its weights."""
        if asked.name:
            message = (
                "A run in an engine has no checkpoints of its own: save_weights_and_get_sampling_"
                f"client samples the engine, and `windlass engines checkpoint {run.base_model}` "
                "makes its weights a model."
            )
            return failed_with(message, "not_in_engine", "user")
        return await self._make_sampler(run, asked.sampler_number, "", effects, is_inflight=True)

    async def _make_sampler(
        self, run: Row, number: int, checkpoint_id: str, effects: Effects, *, is_inflight: bool
    ) -> pb.Result:
        sampler_id = sampler_id_of(run.session_id, number)
        if await self._store.has_sampler(sampler_id) or any(
            one["id"] == sampler_id for one in effects.samplers
        ):
            return failed_with(
                "The session has a sampler of this number.", "sampler_exists", "user"
            )
        effects.samplers.append(_sampler(run, sampler_id, checkpoint_id, is_inflight=is_inflight))
        return pb.Result(saved=pb.SavedCheckpoint(sampler_id=sampler_id, for_sampler=True))

    async def _save_external(
        self, run: Row, operation: DueOperation, asked: pb.SaveExternal, effects: Effects
    ) -> pb.Result:
        path = CheckpointPath(run.id, True, asked.name, is_external=True)
        if await self._store.is_taken(path):
            return _taken(path)
        row = _row(run, asked.name, "", asked.ttl_seconds, is_for_sampler=True)
        row |= {"is_external": True}
        refused = await self._write(run, row, effects, operation.id, replaces=False)
        if refused is not None:
            return refused
        saved = pb.SavedCheckpoint(path=str(path), external=True, bytes=effects.ready[-1].size)
        return pb.Result(saved=saved)

    async def _write(
        self,
        run: Row,
        row: dict[str, Any],
        effects: Effects,
        operation_id: str,
        *,
        replaces: bool,
    ) -> pb.Result | None:
        """Writes what the run is into a new checkpoint; returns a failure, or None."""
        try:
            await self._checkpoints.begin(row)
        except PermissionDenied as error:
            return failed_with(error.message, error.reason, "user")
        async with self._folders.empty() as folder:
            wish = SaveAdapter(folder) if row["is_for_sampler"] else SaveState(folder)
            [outcome] = await self._trainer.execute(run.id, [wish])
            if isinstance(outcome, OperationFailed):
                return failed_result(outcome)
            prefix = prefix_of(run.project_id, row["id"])
            size, files = await self._blobs.upload(folder, prefix)
            if operation_id:
                effects.weights[operation_id] = await asyncio.to_thread(digest_of_folder, folder)
        effects.ready.append(WrittenCheckpoint(row["id"], size, files, replaces))
        return None


def _shape(row: Row) -> tuple[Any, ...]:
    """Returns base model, rank and parts: what weights have to fit."""
    parts = ("rank", "train_attention", "train_mlp", "train_unembedding")
    return row.base_model, *(row.settings.get(part) for part in parts)


def _taken(path: CheckpointPath) -> pb.Result:
    return failed_with(f"{path} exists already.", "checkpoint_exists", "user")


def _row(
    run: Row, name: str, metadata: str, ttl_seconds: int, *, is_for_sampler: bool
) -> dict[str, Any]:
    return {
        "id": new_id("ckpt_"),
        "organization_id": run.organization_id,
        "project_id": run.project_id,
        "run_id": run.id,
        "base_model": run.base_model,
        "settings": run.settings,
        "name": name,
        "is_for_sampler": is_for_sampler,
        "user_metadata": orjson.loads(metadata) if metadata else {},
        "expires_at": now_seconds() + ttl_seconds if ttl_seconds else 0,
    }


def _sampler(run: Row, sampler_id: str, checkpoint_id: str, *, is_inflight: bool) -> dict[str, Any]:
    return {
        "id": sampler_id,
        "organization_id": run.organization_id,
        "project_id": run.project_id,
        "session_id": run.session_id,
        "base_model": run.base_model,
        "checkpoint_id": "" if is_inflight else checkpoint_id,
        "run_id": run.id if is_inflight else "",
        "path": "",
        "created_at": now_seconds(),
    }
