"""Sampler checkpoints that become models of their project."""

import hashlib
import re

import grpc

from windlass.api.models.v1 import models_pb2
from windlass.api.models.v1.models_pb2_grpc import ModelsInternalServiceAsyncStub
from windlass.core.errors import (
    AlreadyExists,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    from_rpc,
)
from windlass.core.objects import ObjectNotFound, ObjectStore
from windlass.core.rpc.auth import Principal
from windlass.core.rpc.model_scope import unknown_model
from windlass.modelfiles.naming import tuned_model_id
from windlass.tuning.admission import reader_of
from windlass.tuning.domain import (
    CheckpointPath,
    parse_checkpoint_id,
    parse_path,
    unknown_checkpoint,
)
from windlass.tuning.full_parameters import is_full
from windlass.tuning.storage.checkpoints import Row, WeightsStore, prefix_of

# What a sampler's checkpoint of an adapter consists of, as PEFT writes it.
FILES = ("adapter_config.json", "adapter_model.safetensors")
BASES = (models_pb2.MODEL_KIND_BASE, models_pb2.MODEL_KIND_FINE_TUNED)
_SUFFIX = re.compile(r"(?!.*\.\.)[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class CheckpointRegistration:
    """Copies checkpoints for models, so that either may be deleted without the other."""

    def __init__(
        self,
        checkpoints: WeightsStore,
        objects: ObjectStore,
        models: ModelsInternalServiceAsyncStub,
    ):
        self._checkpoints = checkpoints
        self._objects = objects
        self._models = models

    async def register(
        self, caller: Principal, run_id: str, checkpoint_id: str, suffix: str, base_model: str
    ) -> str:
        """Returns the id of the model; a repeat with the same suffix answers the first.

        Raises NotFound, InvalidArgument for what is no sampler's, and FailedPrecondition where the
        project has no such base model, or has deleted the model; AlreadyExists for another base.
        """
        if not _SUFFIX.fullmatch(suffix):
            raise InvalidArgument(
                "suffix must be at most 64 letters, digits, '.', '_' and '-', and begin with a "
                "letter or digit.",
                param="suffix",
            )
        path = parse_checkpoint_id(run_id, checkpoint_id)
        row = await self._found(caller, path, "checkpoint_id")
        base = await self._base(caller, base_model or row.base_model)
        return await self._registered(caller, row, suffix, base)

    async def served(self, caller: Principal, name: str) -> str:
        """Returns the id of the model that answers for a checkpoint, registered once.

        Each call asks anew whether the project may read it: what is deleted, or published no
        longer, answers no more by its path. Raises as `register` does.
        """
        try:
            row = await self._found(caller, parse_path(name), "model")
        except NotFound as error:
            raise unknown_model(name) from error
        suffix = row.name if _SUFFIX.fullmatch(row.name) else "sampler"
        base = await self._base(caller, row.base_model)
        # A key that could not ask the model makes none.
        caller.require_model(_model_id(row, base, suffix, caller.require_project()))
        return await self._registered(caller, row, suffix, base)

    async def _found(self, caller: Principal, path: CheckpointPath, param: str) -> Row:
        row = await self._checkpoints.find(reader_of(caller), path)
        caller.require_model(row.base_model, param)
        if not row.is_for_sampler:
            raise InvalidArgument(
                "Only what was saved for samplers is a model: save_weights_for_sampler.",
                reason="not_for_sampler",
                param=param,
            )
        return row

    async def _registered(
        self, caller: Principal, row: Row, suffix: str, base: models_pb2.Model
    ) -> str:
        project_id = caller.require_project()
        model_id = _model_id(row, base, suffix, project_id)
        if not await self._is_there(project_id, model_id):
            await self._copied(project_id, row, base, model_id, suffix)
        return model_id

    async def _base(self, caller: Principal, name: str) -> models_pb2.Model:
        caller.require_model(name, "base_model")
        request = models_pb2.ResolveModelRequest(project_id=caller.require_project(), id=name)
        try:
            found: models_pb2.Model = (await self._models.ResolveModel(request)).model
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.NOT_FOUND:
                raise from_rpc(error) from error
            raise FailedPrecondition(
                f"The project has no model {name!r} for what was trained to be of: import it, or "
                "name the one that has the same weights.",
                reason="model_not_found",
                param="base_model",
            ) from error
        if found.kind not in BASES:
            raise FailedPrecondition(
                f"{name!r} has no complete weights for what was trained to be of.",
                reason="not_a_base_model",
                param="base_model",
            )
        return found

    async def _is_there(self, project_id: str, model_id: str) -> bool:
        request = models_pb2.LookupModelRequest(project_id=project_id, id=model_id)
        try:
            await self._models.LookupModel(request)
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.NOT_FOUND:
                return False
            raise from_rpc(error) from error
        return True

    async def _copied(
        self, project_id: str, row: Row, base: models_pb2.Model, model_id: str, suffix: str
    ) -> None:
        prefix = f"artifacts/{project_id}/{row.id}/{suffix}/"
        # All parameters are a model, of the files that its base has.
        files, kind = FILES, models_pb2.MODEL_KIND_ADAPTER
        if is_full(row.settings):
            files, kind = tuple(sorted(row.files)), models_pb2.MODEL_KIND_FINE_TUNED
        try:
            manifest = models_pb2.Manifest(
                files=[await self._copy(row, name, prefix) for name in files]
            )
            first = await self._models.RegisterModel(
                models_pb2.RegisterModelRequest(
                    id=model_id,
                    organization_id=row.organization_id,
                    project_id=project_id,
                    kind=kind,
                    base_version_id=base.version_id,
                    object_prefix=prefix,
                    manifest=manifest,
                    source=f"{project_id}/{row.id}/{suffix}",
                    parent=base.id,
                )
            )
        except grpc.aio.AioRpcError as error:
            raise from_rpc(error) from error
        if first.id != model_id and await self._is_there(project_id, first.id):
            # Its files are those of the prefix.
            raise AlreadyExists(
                f"The suffix names {first.id!r} of another base: choose another suffix.",
                reason="body_differs",
                param="suffix",
            )
        # The answer to a source that was registered before, whatever became of the model.
        if not await self._is_there(project_id, model_id):
            await self._objects.delete_prefix(prefix)
            raise FailedPrecondition(
                f"The project has deleted {model_id!r}: choose another suffix.",
                reason="artifacts_deleted",
                param="suffix",
            )

    async def _copy(self, row: Row, name: str, prefix: str) -> models_pb2.ManifestEntry:
        content = self._objects.get(prefix_of(row.project_id, row.id) + name)
        try:
            stored = await self._objects.put(prefix + name, content)
        except ObjectNotFound as error:
            # Deleted since it was found.
            raise unknown_checkpoint(row.name) from error
        return models_pb2.ManifestEntry(path=name, bytes=stored.bytes, sha256=stored.sha256)


def _model_id(row: Row, base: models_pb2.Model, suffix: str, project_id: str) -> str:
    ending = _ending(row, project_id)
    return tuned_model_id(base.base_model or base.id, row.organization_id, suffix, ending)


def _ending(row: Row, project_id: str) -> str:
    """The end of a model's name, which no other project's copy of the checkpoint has."""
    if row.project_id == project_id:
        return str(row.id)[-8:]
    return hashlib.sha256(f"{project_id}/{row.id}".encode()).hexdigest()[:8]
