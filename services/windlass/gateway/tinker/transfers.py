"""Checkpoints on their way out of a run, and what else a client takes away."""

from datetime import UTC, datetime

from windlass.api.tuning.v1 import transfer_pb2 as pb
from windlass.api.tuning.v1 import transfer_pb2_grpc as transfer_rpc
from windlass.api.tuning.v1 import tuning_pb2
from windlass.api.tuning.v1 import tuning_pb2_grpc as rpc
from windlass.gateway.tinker.bodies import CopyWeightsBody, ModelBody, ProjectNameBody
from windlass.gateway.tinker.errors import TinkerError
from windlass.gateway.tinker.lending import Lending
from windlass.gateway.tinker.requests import TinkerRequest, int32
from windlass.gateway.tinker.routing import CHECKPOINT, Answer, Redirect, TinkerRoute, route

_TOKEN = b"x-tinker-weights-access-token"
_KEY = b"x-idempotency-key"
_MAX_TTL = 2**40


class TransferRoutes:
    """Routes of publishing, copies, downloads and moves."""

    def __init__(
        self,
        tuning: rpc.TuningServiceAsyncStub,
        transfers: transfer_rpc.TransferServiceAsyncStub,
        lending: Lending,
    ):
        self._tuning = tuning
        self._transfers = transfers
        self._lending = lending

    def routes(self) -> tuple[TinkerRoute, ...]:
        """Every route."""
        return (
            route("POST", CHECKPOINT + "/publish", self._publish),
            route("DELETE", CHECKPOINT + "/publish", self._unpublish),
            route("GET", CHECKPOINT + "/external_weights_urls", self._urls),
            route("GET", CHECKPOINT + "/archive", self._archive),
            route("POST", "copy_weights", self._copy),
            # Ours; the SDK knows no models but the hosted service's.
            route("POST", CHECKPOINT + "/model", self._register),
            route("PUT", "sessions/{session_id}/project", self._move),
            route("GET", "sessions/{session_id}/trace_export", self._trace),
        )

    async def _publish(self, request: TinkerRequest) -> Answer:
        await self._transfers.PublishCheckpoint(pb.PublishCheckpointRequest(**request.names))
        return None

    async def _unpublish(self, request: TinkerRequest) -> Answer:
        await self._transfers.UnpublishCheckpoint(pb.UnpublishCheckpointRequest(**request.names))
        return None

    async def _register(self, request: TinkerRequest) -> Answer:
        asked = request.decoded(ModelBody)
        made = await self._transfers.RegisterCheckpoint(
            pb.RegisterCheckpointRequest(
                **request.names, suffix=asked.suffix, base_model=asked.base_model
            )
        )
        return {"model": made.model_id}

    async def _urls(self, request: TinkerRequest) -> Answer:
        found = await self._transfers.GetDownloads(_wanted(request, archive=False))
        expires = datetime.fromtimestamp(found.expires_at, UTC).isoformat()
        return {"urls": dict(found.urls), "expires": expires}

    async def _archive(self, request: TinkerRequest) -> Answer:
        return _only(await self._transfers.GetDownloads(_wanted(request, archive=True)))

    async def _copy(self, request: TinkerRequest) -> Answer:
        asked = request.decoded(CopyWeightsBody)
        is_named = (asked.session_id is not None, asked.model_seq_id is not None)
        if is_named not in ((False, False), (True, True)):
            raise TinkerError(400, "Name a session and a number in it.", code="invalid_value")
        if asked.destination_project_id not in (None, "", request.caller.project_id):
            raise TinkerError(
                404,
                "No such project: a copy is made with a key of the project that will have it.",
                code="not_found",
                param="destination_project_id",
            )
        headers = request.exchange.headers
        token = asked.weights_access_token or headers.get(_TOKEN, b"").decode("latin-1")
        made = await self._transfers.CopyCheckpoint(
            pb.CopyCheckpointRequest(
                source_path=asked.source_path,
                session_id=asked.session_id or "",
                number=int32(asked.model_seq_id or 0, "model_seq_id"),
                idempotency_key=headers.get(_KEY, b"").decode("latin-1"),
                ttl_seconds=min(max(asked.ttl_seconds or 0, -1), _MAX_TTL),
                access=await self._lending.access(request, token, asked.source_path),
            )
        )
        return {"tinker_path": made.path}

    async def _move(self, request: TinkerRequest) -> Answer:
        asked = request.decoded(ProjectNameBody)
        wanted = tuning_pb2.GetSessionRequest(session_id=request.names["session_id"])
        await self._tuning.GetSession(wanted)
        if asked.project_id != request.caller.project_id:
            # By the same words for every other project.
            raise TinkerError(
                400,
                "A session stays in its project, by whose key what it made is sealed. "
                "Copy its checkpoints into the other project.",
                code="session_bound",
                param="project_id",
            )
        return None

    async def _trace(self, request: TinkerRequest) -> Answer:
        wanted = pb.ExportTraceRequest(session_id=request.names["session_id"])
        found = _only(await self._transfers.ExportTrace(wanted))
        return {"status": "ready", "url": found.url}


def _wanted(request: TinkerRequest, *, archive: bool) -> pb.GetDownloadsRequest:
    names = request.names
    return pb.GetDownloadsRequest(
        run_id=names["run_id"], checkpoint_id=names["checkpoint_id"], archive=archive
    )


def _only(found: pb.Downloads) -> Redirect:
    [url] = found.urls.values()
    return Redirect(url, found.expires_at)
