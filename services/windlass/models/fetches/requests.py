"""Fetches as their callers see them: wished for, looked at, cancelled."""

from windlass.api.models.v1 import models_pb2 as pb
from windlass.core.clock import now_seconds
from windlass.core.db.paging import cut, page_size
from windlass.core.db.wake import Wake
from windlass.core.errors import FailedPrecondition, NotFound
from windlass.core.ids import new_id, new_name
from windlass.core.rpc.auth import Principal, current
from windlass.models.domain import import_name, require_global, version_prefix
from windlass.models.fetches.hub import SCHEME, repository_of, revision_of
from windlass.models.fetches.store import OPEN, Fetch, FetchState, FetchStore
from windlass.models.store import ModelStore, name_taken

TOPIC = "models.fetches"
_STATES = {
    FetchState.QUEUED: pb.FETCH_STATE_QUEUED,
    FetchState.RUNNING: pb.FETCH_STATE_RUNNING,
    FetchState.SUCCEEDED: pb.FETCH_STATE_SUCCEEDED,
    FetchState.FAILED: pb.FETCH_STATE_FAILED,
    FetchState.CANCELLED: pb.FETCH_STATE_CANCELLED,
}


class FetchRequests:
    """Creates, shows and cancels fetches of the caller's project."""

    def __init__(self, fetches: FetchStore, models: ModelStore, wake: Wake, *, offered: bool):
        self._fetches = fetches
        self._models = models
        self._wake = wake
        self._offered = offered

    async def create(self, request: pb.CreateFetchRequest) -> pb.Fetch:
        """Notes the wish; the work follows."""
        principal = current()
        principal.require_project()
        if request.is_global:
            require_global(principal.may("platform.write"))
        if not self._offered:
            raise FailedPrecondition(
                "Fetching models is disabled: hub.endpoint is not set.",
                reason="fetch_not_offered",
            )
        repository = repository_of(request.source)
        name = import_name(request.id or repository.partition("/")[2])
        principal.require_model(name, "id")
        await self._require_free(principal, name, is_global=request.is_global)
        version_id = new_name("mv-")
        owner = "" if request.is_global else principal.project_id
        wished = Fetch(
            id=new_id("fetch-"),
            organization_id=principal.organization_id,
            project_id=principal.project_id,
            name=name,
            is_global=request.is_global,
            repository=repository,
            revision=revision_of(request.revision),
            version_id=version_id,
            created_at=now_seconds(),
            object_prefix=version_prefix(version_id, project_id=owner),
        )
        made = await self._fetches.create(principal, wished)
        self._wake.touch(TOPIC)
        return _message(made)

    async def get(self, request: pb.GetFetchRequest) -> pb.Fetch:
        """Returns one fetch."""
        return _message(await self._fetches.get(current(), request.id))

    async def list(self, request: pb.ListFetchesRequest) -> pb.ListFetchesResponse:
        """The project's, newest first."""
        size = page_size(request.limit)
        rows = await self._fetches.list(current(), after=request.after, limit=size + 1)
        page, more = cut(rows, size)
        return pb.ListFetchesResponse(fetches=[_message(one) for one in page], has_more=more)

    async def cancel(self, request: pb.CancelFetchRequest) -> pb.Fetch:
        """Ends one that is open."""
        found = await self._fetches.cancel(current(), request.id)
        self._wake.touch(TOPIC)
        return _message(found)

    async def _require_free(self, principal: Principal, name: str, *, is_global: bool) -> None:
        project = "" if is_global else principal.project_id
        try:
            found = await self._models.resolve(project, name)
        except NotFound:
            return
        if found.project_id == project:
            raise name_taken(name)


def _message(fetch: Fetch) -> pb.Fetch:
    is_open = fetch.state in OPEN
    return pb.Fetch(
        id=fetch.id,
        model=fetch.name,
        source=SCHEME + fetch.repository,
        revision=fetch.revision,
        commit=fetch.commit,
        state=_STATES[fetch.state],
        bytes_done=fetch.bytes_done,
        bytes_total=fetch.bytes_total,
        error_code=fetch.error_code,
        error_message="" if is_open else fetch.error_message,
        retry_reason=fetch.error_message if is_open else "",
        waits_for=_waits_for(fetch) if is_open and not fetch.error_message else "",
        created_at=fetch.created_at,
        finished_at=fetch.finished_at,
        is_global=fetch.is_global,
    )


def _waits_for(fetch: Fetch) -> str:
    if fetch.state is FetchState.QUEUED:
        return "waiting for its turn among the server's fetches"
    if not fetch.bytes_total:
        return "waiting for the hub's list of files"
    return "checking the files" if fetch.bytes_done >= fetch.bytes_total else ""
