"""Copies of checkpoints into runs of another project or session."""

import hashlib
from functools import partial
from typing import Any

from windlass.api.tuning.v1 import transfer_pb2 as pb
from windlass.api.tuning.v1 import tuning_pb2
from windlass.core.clock import now_seconds
from windlass.core.errors import FailedPrecondition, InvalidArgument
from windlass.core.ids import new_id
from windlass.core.objects import ObjectMismatch, ObjectNotFound, ObjectStore
from windlass.core.rpc.auth import Principal
from windlass.tuning.admission import known_model, valid_settings
from windlass.tuning.domain import run_id_of, unknown_checkpoint, valid_text, valid_ttl
from windlass.tuning.full_parameters import is_full
from windlass.tuning.storage.checkpoints import Row, prefix_of
from windlass.tuning.storage.outcomes import WrittenCheckpoint
from windlass.tuning.transfer.copy_store import CopyStore
from windlass.tuning.transfer.sharing import SharedWork
from windlass.tuning_api.trainers.port import Trainer

SHORTEST_TTL_SECONDS = 3600


class CheckpointCopies:
    """Makes copies: the row first, then its objects, whose digests are compared."""

    def __init__(
        self, store: CopyStore, objects: ObjectStore, trainer: Trainer, shared: SharedWork
    ):
        self._store = store
        self._objects = objects
        self._trainer = trainer
        self._shared = shared

    async def copy(self, caller: Principal, request: pb.CopyCheckpointRequest, source: Row) -> str:
        """Copies a checkpoint that the caller may read; returns the id of the run that has it.

        Raises InvalidArgument for what no model here takes, as `CopyStore.begin`, NotFound,
        FailedPrecondition `checkpoint_damaged`, Unavailable `still_being_made`.
        """
        model = known_model(self._trainer.base_models, source.base_model)
        wish = tuning_pb2.RunSettings(**source.settings)
        valid_settings(wish, model, is_full=is_full(source.settings))
        ttl = valid_ttl(request.ttl_seconds)
        if ttl and ttl < SHORTEST_TTL_SECONDS:
            raise InvalidArgument(
                f"ttl_seconds must be at least {SHORTEST_TTL_SECONDS}.", param="ttl_seconds"
            )
        run = _run(caller, request, source)
        row = await self._store.begin(run, _checkpoint(run, source, ttl))
        if row.state != "ready":
            work = partial(self._carry_out, source, row)
            await self._shared.done(row.project_id, row.id, work)
        return str(run["id"])

    async def _carry_out(self, source: Row, target: Row) -> None:
        old = prefix_of(source.project_id, source.id)
        new = prefix_of(target.project_id, target.id)
        size, files = 0, {}
        try:
            names = [one.key.removeprefix(old) async for one in self._objects.list(old)]
            if not names or not set(source.files) <= set(names):
                raise ObjectNotFound(old)
            for name in names:
                known = bytes.fromhex(source.files.get(name, ""))
                stored = await self._objects.put(
                    new + name, self._objects.get(old + name), sha256=known or None
                )
                size += stored.bytes
                files[name] = stored.sha256.hex()
        except ObjectNotFound as error:
            raise unknown_checkpoint(source.name) from error
        except ObjectMismatch as error:
            raise FailedPrecondition(
                "A file of the checkpoint is not what was saved.", reason="checkpoint_damaged"
            ) from error
        await self._store.finish(WrittenCheckpoint(target.id, size, files))


def _run(caller: Principal, request: pb.CopyCheckpointRequest, source: Row) -> dict[str, Any]:
    project_id = caller.require_project()
    if request.session_id:
        run_id = run_id_of(request.session_id, request.number)
    else:
        key = valid_text(request.idempotency_key, "X-Idempotency-Key") or new_id("key_")
        run_id = f"copy-{_digest(project_id, key)}:train:0"
    return {
        "id": run_id,
        "organization_id": caller.organization_id,
        "project_id": project_id,
        "user_id": caller.user_id,
        "session_id": request.session_id,
        "base_model": source.base_model,
        "settings": source.settings,
        "user_metadata": {"copied_from": request.source_path},
    }


def _checkpoint(run: dict[str, Any], source: Row, ttl_seconds: int) -> dict[str, Any]:
    return {
        # One of each run, so that a repeat finds it.
        "id": f"ckpt_{_digest(run['id'])}",
        "organization_id": run["organization_id"],
        "project_id": run["project_id"],
        "run_id": run["id"],
        "base_model": source.base_model,
        "settings": source.settings,
        "name": source.name,
        "is_for_sampler": source.is_for_sampler,
        "is_external": source.is_external,
        "user_metadata": source.user_metadata,
        # Counted before it is there.
        "size": source.size,
        "expires_at": now_seconds() + ttl_seconds if ttl_seconds else 0,
    }


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]
