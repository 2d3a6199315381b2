"""Draft models: smaller ones that guess tokens for a model, compared with it before they do."""

import asyncio

import grpc

from windlass.api.models.v1 import models_pb2
from windlass.api.models.v1.models_pb2_grpc import ModelsInternalServiceAsyncStub
from windlass.core.errors import InvalidArgument, NotFound, from_rpc
from windlass.core.objects import ObjectNotFound, ObjectStore
from windlass.core.rpc.auth import current
from windlass.engine_arguments import EngineArguments
from windlass.inference.names import quantization_of_model
from windlass.modelfiles.documents import max_bytes
from windlass.modelfiles.quantization import unreadable
from windlass.modelfiles.vocabulary import (
    BOUNDS,
    CONFIG,
    TOKENIZER,
    Vocabulary,
    draft_objection,
    vocabulary,
)

PARAM = "arguments.draft_model"
_COMPLETE = (models_pb2.MODEL_KIND_BASE, models_pb2.MODEL_KIND_FINE_TUNED)
_OTHER_TASKS = (models_pb2.MODEL_TASK_SCORING, models_pb2.MODEL_TASK_EMBEDDING)


class Drafts:
    """Finds the draft of a serving; raises InvalidArgument or NotFound, which name the argument."""

    def __init__(self, models: ModelsInternalServiceAsyncStub, objects: ObjectStore):
        self._models = models
        self._objects = objects
        # Two vocabularies take some hundred megabytes while they are compared.
        self._reading = asyncio.Semaphore(1)

    async def version_of(
        self, model: models_pb2.ResolvedModel, arguments: EngineArguments, engine: str
    ) -> str:
        """Returns the version of the draft that suits a model and its engine; empty for none."""
        if (name := arguments.draft_model) is None:
            return ""
        if arguments.task is None and model.model.task in _OTHER_TASKS:
            raise InvalidArgument(
                f"{model.model.id} generates no text, so no draft can guess for it.", param=PARAM
            )
        draft = await self._visible(model.model, name)
        _require_weights(model.model, draft.model)
        if why := unreadable(quantization_of_model(draft.model), engine):
            raise InvalidArgument(f"{name} cannot be a draft. {why}", param=PARAM)
        async with self._reading:
            mine, its = await self._vocabulary(model), await self._vocabulary(draft)
            why = await asyncio.to_thread(draft_objection, mine, its, BOUNDS[engine])
        if why:
            raise InvalidArgument(f"{name} cannot guess for {model.model.id}: {why}.", param=PARAM)
        return draft.model.version_id

    async def _visible(self, model: models_pb2.Model, name: str) -> models_pb2.ResolvedModel:
        """The model's project's own by this name, or the one for everyone; nobody else's."""
        current().require_model(name, PARAM)
        request = models_pb2.ResolveModelRequest(project_id=model.project_id, id=name)
        try:
            found = await self._models.ResolveModel(request)
        except grpc.aio.AioRpcError as error:
            if not isinstance(refusal := from_rpc(error), NotFound):
                raise
            raise NotFound(refusal.message, reason=refusal.reason, param=PARAM) from error
        if found.model.project_id not in ("", model.project_id):
            raise InvalidArgument(
                f"{name} belongs to another project; a draft is of the model's own, or for "
                "everyone.",
                param=PARAM,
            )
        return found

    async def _vocabulary(self, resolved: models_pb2.ResolvedModel) -> Vocabulary:
        sizes = {file.path: file.bytes for file in resolved.manifest.files}
        contents = []
        for path in (CONFIG, TOKENIZER):
            if not 0 < sizes.get(path, 0) <= max_bytes(path):
                raise _unreadable(resolved, f"it has no {path}, or one that is too large")
            contents.append(await self._read(resolved, path))
        try:
            return await asyncio.to_thread(vocabulary, *contents)
        except ValueError as error:
            raise _unreadable(resolved, str(error)) from error

    async def _read(self, resolved: models_pb2.ResolvedModel, path: str) -> bytes:
        parts = self._objects.get(resolved.object_prefix + path, start=0, end=max_bytes(path))
        try:
            return b"".join([part async for part in parts])
        except ObjectNotFound as error:
            raise _unreadable(resolved, f"its {path} is gone") from error


def _require_weights(model: models_pb2.Model, draft: models_pb2.Model) -> None:
    """Raises InvalidArgument for a draft that no engine could have beside the model."""
    why = ""
    if draft.version_id == model.version_id:
        why = "is the model itself"
    elif draft.kind not in _COMPLETE:
        why = "has no complete weights"
    elif draft.task in _OTHER_TASKS:
        why = "generates no text"
    if why:
        raise InvalidArgument(f"{draft.id} cannot be a draft: it {why}.", param=PARAM)


def _unreadable(resolved: models_pb2.ResolvedModel, why: str) -> InvalidArgument:
    return InvalidArgument(
        f"The vocabulary of {resolved.model.id} cannot be compared: {why}.", param=PARAM
    )
