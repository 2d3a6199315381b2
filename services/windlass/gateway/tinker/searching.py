"""The search of sessions."""

from typing import Any

from windlass.api.tuning.v1 import tuning_pb2 as pb
from windlass.api.tuning.v1 import tuning_pb2_grpc as rpc
from windlass.gateway.tinker.bodies import SearchBody, SearchStatusBody
from windlass.gateway.tinker.errors import TinkerError
from windlass.gateway.tinker.requests import TinkerRequest, metadata_text
from windlass.gateway.tinker.routing import Answer, TinkerRoute, route
from windlass.gateway.tinker.sessions import texts, time_text

# Of sessions that nothing here ends so.
_NEVER = frozenset({"cancelled", "failed"})


class SearchRoutes:
    """Routes that find sessions."""

    def __init__(self, tuning: rpc.TuningServiceAsyncStub):
        self._tuning = tuning

    def routes(self) -> tuple[TinkerRoute, ...]:
        """Every route."""
        return (route("POST", "sessions/search", self._search),)

    async def _search(self, request: TinkerRequest) -> Answer:
        asked = request.decoded(SearchBody)
        if not 1 <= asked.limit <= 200:
            raise TinkerError(400, "limit must be between 1 and 200.", code="invalid_value")
        if any(one != request.caller.project_id for one in asked.project_ids or ()):
            raise TinkerError(404, "No such project.", code="not_found", param="project_ids")
        statuses = [one for one in asked.statuses or () if one.type not in _NEVER]
        if asked.statuses and not statuses:
            return {"sessions": [], "next_cursor": None}
        owners = {"own": [request.caller.user_id], "user": asked.owner.owner_urns}
        wanted = pb.SearchSessionsRequest(
            session_id=asked.session_id or "",
            display_name=asked.display_name or "",
            user_metadata=metadata_text(asked.user_metadata),
            user_ids=owners.get(asked.owner.type, ()),
            after=asked.cursor.last_session_id if asked.cursor else "",
            limit=asked.limit,
        )
        for status in statuses:
            _add(wanted, status)
        found = await self._tuning.SearchSessions(wanted)
        project_id = request.caller.project_id
        return {
            "sessions": [_found_json(one, project_id) for one in found.sessions],
            "next_cursor": _cursor(found) if found.has_more else None,
        }


def _add(wanted: pb.SearchSessionsRequest, status: SearchStatusBody) -> None:
    if status.type == "active":
        wanted.states.append(pb.SESSION_STATE_ACTIVE)
    elif status.reasons:
        wanted.ends.extend(status.reasons)
    else:
        wanted.states.append(pb.SESSION_STATE_FINISHED)


def _cursor(found: pb.SearchSessionsResponse) -> dict[str, Any]:
    last = found.sessions[-1].session
    return {"last_created_at": time_text(last.created_at), "last_session_id": last.id}


def _found_json(found: pb.FoundSession, project_id: str) -> dict[str, Any]:
    session = found.session
    return {
        "session_id": session.id,
        "created_at": time_text(session.created_at),
        "owner": session.user_id,
        "project_id": project_id,
        "status": _status(session),
        "checkpoints_count": found.checkpoints,
        "checkpoint_storage_bytes": found.checkpoint_bytes,
        "display_name": session.display_name or None,
        "user_metadata": texts(session.user_metadata),
    }


def _status(session: pb.Session) -> dict[str, Any] | None:
    if session.state == pb.SESSION_STATE_FINISHED:
        reason = {"type": session.end}
        return {"type": "client_finished", "reason": reason, "detail": session.detail or None}
    return {"type": "active"} if session.state == pb.SESSION_STATE_ACTIVE else None
