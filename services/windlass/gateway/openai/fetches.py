"""/v1/model_fetches: models that the server gets from a hub by itself."""

from typing import Annotated

from pydantic import Field

from windlass.api.models.v1 import models_pb2 as pb
from windlass.api.models.v1 import models_pb2_grpc as rpc
from windlass.bounds import REVISION_LENGTH, SOURCE_LENGTH
from windlass.core.app import App
from windlass.gateway.openai.rendering import Json, page
from windlass.gateway.parameters import After, Body, Limit
from windlass.gateway.resource_router import ResourceRouter
from windlass.modelfiles.naming import ID_LENGTH


class FetchModel(Body):
    """A repository to fetch, and the name that the model gets."""

    source: Annotated[str, Field(max_length=SOURCE_LENGTH, description="hf://user/repository")]
    revision: Annotated[str, Field(max_length=REVISION_LENGTH)] = ""
    id: Annotated[str, Field(max_length=ID_LENGTH)] = ""
    for_everyone: Annotated[bool, Field(alias="global")] = False


def fetches_router(app: App) -> ResourceRouter:
    """Fetches of the project."""
    router = ResourceRouter(prefix="/model_fetches", tags=["models"])
    models = app.clients.stub(rpc.ModelsServiceStub)

    @router.post("")
    async def create_fetch(body: FetchModel) -> Json:
        """Begins a fetch; the project's secret `huggingface` opens what is gated."""
        request = pb.CreateFetchRequest(
            source=body.source, revision=body.revision, id=body.id, is_global=body.for_everyone
        )
        return _render(await models.CreateFetch(request))

    @router.get("")
    async def list_fetches(after: After = "", limit: Limit = 0) -> Json:
        """The project's, newest first."""
        found = await models.ListFetches(pb.ListFetchesRequest(after=after, limit=limit))
        return page([_render(fetch) for fetch in found.fetches], found.has_more)

    @router.get("/{fetch_id}")
    async def retrieve_fetch(fetch_id: str) -> Json:
        """The progress of one fetch."""
        return _render(await models.GetFetch(pb.GetFetchRequest(id=fetch_id)))

    @router.post("/{fetch_id}/cancel")
    async def cancel_fetch(fetch_id: str) -> Json:
        """Ends one and removes what it brought."""
        return _render(await models.CancelFetch(pb.CancelFetchRequest(id=fetch_id)))

    return router


def _render(fetch: pb.Fetch) -> Json:
    state = pb.FetchState.Name(fetch.state).removeprefix("FETCH_STATE_").lower()
    error = {"code": fetch.error_code, "message": fetch.error_message}
    return {
        "id": fetch.id,
        "object": "model.fetch",
        "model": fetch.model,
        "source": fetch.source,
        "revision": fetch.revision,
        "commit": fetch.commit or None,
        "status": state,
        "bytes_done": fetch.bytes_done,
        "bytes_total": fetch.bytes_total or None,
        "retry_reason": fetch.retry_reason or None,
        "waits_for": fetch.waits_for or None,
        "error": error if fetch.error_code else None,
        "global": fetch.is_global,
        "created_at": fetch.created_at,
        "finished_at": fetch.finished_at or None,
    }
