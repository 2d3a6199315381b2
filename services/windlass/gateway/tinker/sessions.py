"""Sessions, and what a client asks before it has one."""

from datetime import UTC, datetime
from typing import Any

import orjson

from windlass.api.tuning.v1 import tuning_pb2 as pb
from windlass.api.tuning.v1 import tuning_pb2_grpc as rpc
from windlass.gateway.tinker.bodies import CreateSessionBody, FinishSessionBody, SessionNameBody
from windlass.gateway.tinker.errors import TinkerError
from windlass.gateway.tinker.requests import TinkerRequest, metadata_text
from windlass.gateway.tinker.routing import Answer, TinkerRoute, route

# What a client keeps in flight, and in which pieces it sends.
CLIENT_CONFIG: dict[str, Any] = {
    "pjwt_auth_enabled": False,
    "credential_default_source": "api_key",
    "parallel_fwdbwd_chunks": True,
    "proto_compress_fwdbwd": False,
    "fwdbwd_max_chunk_len": 1024,
    "fwdbwd_max_chunk_bytes_count": 5_000_000,
    "fwdbwd_dispatch_bytes_semaphore_size": 50_000_000,
    "sample_max_concurrent_requests": 512,
    "sample_use_retrieve_futures": True,
    "sample_join_sampling_session": True,
    "custom_loss_server_side": True,
    "use_pyqwest_transport": False,
}
# Of one page; a cursor says that there are more.
MAX_LIST = 200
DYNAMIC_CONFIG = {"refresh_interval_sec": 300, "sample_cancel_enabled": True}


class SessionRoutes:
    """Routes of sessions."""

    def __init__(self, tuning: rpc.TuningServiceAsyncStub):
        self._tuning = tuning

    def routes(self) -> tuple[TinkerRoute, ...]:
        """Every route."""
        return (
            route("POST", "client/config", self._config),
            route("POST", "client/dynamic_config", self._dynamic_config),
            route("POST", "telemetry", self._telemetry),
            route("GET", "auth/apikey/me", self._caller),
            route("GET", "get_server_capabilities", self._capabilities),
            route("POST", "create_session", self._create),
            route("POST", "session_heartbeat", self._beat),
            route("POST", "sessions/{session_id}/finish", self._finish),
            route("GET", "sessions/{session_id}", self._get),
            route("GET", "sessions", self._list),
        )

    async def _config(self, request: TinkerRequest) -> Answer:
        if not (request.caller.project_id and request.caller.may("tuning.read")):
            return CLIENT_CONFIG
        return throttled(await self._tuning.GetQueue(pb.GetQueueRequest()))

    async def _dynamic_config(self, request: TinkerRequest) -> Answer:
        return DYNAMIC_CONFIG

    async def _telemetry(self, request: TinkerRequest) -> Answer:
        # Nothing of it is kept.
        return {"status": "accepted"}

    async def _caller(self, request: TinkerRequest) -> Answer:
        caller = request.caller
        return {"user_urn": caller.user_id, "org_urn": caller.organization_id, "email": None}

    async def _capabilities(self, request: TinkerRequest) -> Answer:
        found = await self._tuning.GetCapabilities(pb.GetCapabilitiesRequest())
        models = [
            {
                "model_name": model.name,
                "max_context_length": model.max_context_length,
                "trainable": True,
                "sampleable": True,
            }
            for model in found.models
        ]
        return {"supported_models": models}

    async def _create(self, request: TinkerRequest) -> Answer:
        asked = request.decoded(CreateSessionBody)
        if asked.project_id not in (None, "", request.caller.project_id):
            raise TinkerError(404, "No such project.", code="not_found", param="project_id")
        made = await self._tuning.CreateSession(
            pb.CreateSessionRequest(
                tags=asked.tags,
                user_metadata=metadata_text(asked.user_metadata),
                sdk_version=asked.sdk_version,
                display_name=asked.display_name or "",
            )
        )
        return {"type": "create_session", "session_id": made.id}

    async def _beat(self, request: TinkerRequest) -> Answer:
        asked = request.decoded(SessionNameBody)
        await self._tuning.Heartbeat(pb.HeartbeatRequest(session_id=asked.session_id))
        return {"type": "session_heartbeat"}

    async def _finish(self, request: TinkerRequest) -> Answer:
        asked = request.decoded(FinishSessionBody)
        await self._tuning.FinishSession(
            pb.FinishSessionRequest(
                session_id=request.names["session_id"],
                end=asked.reason.type,
                detail=asked.detail or "",
            )
        )
        return {}

    async def _get(self, request: TinkerRequest) -> Answer:
        wanted = pb.GetSessionRequest(session_id=request.names["session_id"])
        return session_json(await self._tuning.GetSession(wanted))

    async def _list(self, request: TinkerRequest) -> Answer:
        limit, offset = page_of(request, 20)
        wanted = pb.ListSessionsRequest(limit=limit, offset=offset)
        found = await self._tuning.ListSessions(wanted)
        return {"sessions": [one.id for one in found.sessions]}


def throttled(queue: pb.Queue) -> dict[str, Any]:
    """Returns bounds of what a client keeps in flight: what its project's queue has room for."""
    room = max(queue.max_waiting - queue.waiting, 1)
    chunk = CLIENT_CONFIG["fwdbwd_max_chunk_bytes_count"]
    most = CLIENT_CONFIG["fwdbwd_dispatch_bytes_semaphore_size"]
    return CLIENT_CONFIG | {
        "sample_max_concurrent_requests": min(
            room, CLIENT_CONFIG["sample_max_concurrent_requests"]
        ),
        "fwdbwd_dispatch_bytes_semaphore_size": min(room * chunk, most),
        "fwdbwd_max_chunk_len": queue.max_examples,
    }


def session_json(session: pb.Session) -> dict[str, Any]:
    """A session with what is its own."""
    return {
        "training_run_ids": list(session.run_ids),
        "sampler_ids": list(session.sampler_ids),
        "user_metadata": texts(session.user_metadata),
        "display_name": session.display_name or None,
    }


def time_text(seconds: int) -> str:
    """A moment as the SDK reads it."""
    return datetime.fromtimestamp(seconds, UTC).isoformat()


def texts(metadata: str) -> dict[str, str]:
    """User metadata as the SDK types it: text for each key."""
    return {
        key: value if isinstance(value, str) else orjson.dumps(value).decode()
        for key, value in orjson.loads(metadata or "{}").items()
    }


def page_of(request: TinkerRequest, default: int) -> tuple[int, int]:
    """The limit and the offset of a list."""
    limit = min(max(request.number("limit", default), 1), MAX_LIST)
    return limit, request.number("offset", 0)
