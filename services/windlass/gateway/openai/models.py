"""/v1/models, and the import of base models."""

import re
from typing import Annotated, Literal

from fastapi import Query
from pydantic import Field

from windlass.api.models.v1 import models_pb2 as pb
from windlass.api.models.v1 import models_pb2_grpc as rpc
from windlass.core.app import App
from windlass.core.errors import InvalidArgument
from windlass.gateway.openai.rendering import Json, page, render_model
from windlass.gateway.parameters import After, Body, ModelsLimit
from windlass.gateway.resource_router import ResourceRouter
from windlass.modelfiles.layout import MAX_FILE_BYTES, MAX_FILES, PATH_LENGTH
from windlass.modelfiles.naming import ID_LENGTH

_SHA256 = re.compile(r"[0-9a-fA-F]{64}")


Kind = Literal["base", "fine-tuned", "checkpoint", "adopted"]
_ONLY: dict[Kind | None, pb.ListModelsRequest] = {
    "base": pb.ListModelsRequest(kinds=[pb.MODEL_KIND_BASE]),
    "fine-tuned": pb.ListModelsRequest(
        kinds=[pb.MODEL_KIND_ADAPTER, pb.MODEL_KIND_FINE_TUNED], is_checkpoint=False
    ),
    "checkpoint": pb.ListModelsRequest(is_checkpoint=True),
    "adopted": pb.ListModelsRequest(kinds=[pb.MODEL_KIND_ADOPTED]),
}


class ImportFile(Body):
    """One file that will be uploaded."""

    path: Annotated[str, Field(min_length=1, max_length=PATH_LENGTH)]
    bytes: Annotated[int, Field(ge=0, le=MAX_FILE_BYTES)]
    sha256: Annotated[str, Field(description="64 hexadecimal digits.")]


class ImportModel(Body):
    """A base model to bring in: its public name and every file of it."""

    id: Annotated[str, Field(min_length=1, max_length=ID_LENGTH)]
    files: Annotated[list[ImportFile], Field(min_length=1, max_length=MAX_FILES)]
    for_everyone: Annotated[bool, Field(alias="global")] = False


def models_router(app: App) -> ResourceRouter:
    """Models."""
    router = ResourceRouter(prefix="/models", tags=["models"])
    models = app.clients.stub(rpc.ModelsServiceStub)

    @router.get("")
    async def list_models(
        after: After = "",
        limit: ModelsLimit = 0,
        kind: Annotated[Kind | None, Query(description="Only models of this kind.")] = None,
    ) -> Json:
        """Models of the project and those for everyone, newest first: 500 on a page."""
        only = _ONLY.get(kind, pb.ListModelsRequest())
        wanted = pb.ListModelsRequest(after=after, limit=limit)
        wanted.MergeFrom(only)
        answer = await models.ListModels(wanted)
        return page([render_model(model) for model in answer.models], answer.has_more)

    @router.post("/imports")
    async def create_import(body: ImportModel) -> Json:
        """Starts an import; returns where to PUT each file."""
        entries = [
            pb.ManifestEntry(path=file.path, bytes=file.bytes, sha256=_digest(file.sha256, number))
            for number, file in enumerate(body.files)
        ]
        started = await models.CreateImport(
            pb.CreateImportRequest(
                id=body.id, manifest=pb.Manifest(files=entries), is_global=body.for_everyone
            )
        )
        return {
            "object": "model.import",
            "import_id": started.import_id,
            "uploads": [{"path": upload.path, "url": upload.url} for upload in started.uploads],
        }

    @router.post("/imports/{import_id}/complete")
    async def complete_import(import_id: str) -> Json:
        """Verifies what was uploaded; the model then exists."""
        request = pb.CompleteImportRequest(import_id=import_id)
        # Every byte is read and hashed once more.
        return render_model(await models.CompleteImport(request, timeout=3600))

    # Names may have slashes; these come last, since they match everything below.
    @router.get("/{model:path}")
    async def retrieve_model(model: str) -> Json:
        """Returns one model."""
        return render_model(await models.GetModel(pb.GetModelRequest(id=model)))

    @router.delete("/{model:path}")
    async def delete_model(model: str) -> Json:
        """Deletes a model that nothing uses, and its artifacts; names the checkpoints that stay."""
        answer = await models.DeleteModel(pb.DeleteModelRequest(id=model))
        return {
            "id": model,
            "object": "model",
            "deleted": True,
            "windlass": {"checkpoints": list(answer.checkpoints)},
        }

    return router


def _digest(text: str, number: int) -> bytes:
    if not _SHA256.fullmatch(text):
        raise InvalidArgument(
            "A SHA-256 must be 64 hexadecimal digits.", param=f"files.{number}.sha256"
        )
    return bytes.fromhex(text)
