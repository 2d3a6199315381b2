"""The audit log of an organization as the SDK reads it: a day at a time."""

from datetime import UTC, date, datetime, timedelta
from typing import Any

import orjson

from windlass.api.rbac.v1 import rbac_pb2 as pb
from windlass.api.rbac.v1 import rbac_pb2_grpc as rpc
from windlass.core.clock import now_seconds
from windlass.gateway.tinker.errors import TinkerError
from windlass.gateway.tinker.requests import TinkerRequest
from windlass.gateway.tinker.routing import Answer, TinkerRoute, route

# Of one answer, which has no pages.
MOST, PAGE = 5000, 100
# The word that actions of each kind have.
_KINDS = {
    "all": "", "checkpoints": "Checkpoint", "projects": "Project", "teams": "Group",
    "organizations": "Organization",
}  # fmt: skip


class AuditRoutes:
    """The route of the audit log."""

    def __init__(self, audit: rpc.RbacServiceAsyncStub):
        self._audit = audit

    def routes(self) -> tuple[TinkerRoute, ...]:
        """Every route."""
        return (route("GET", "audit", self._list),)

    async def _list(self, request: TinkerRequest) -> Answer:
        kind = _KINDS.get(request.query.get("event_type", "all"))
        if kind is None:
            raise TinkerError(400, "event_type is not known.", code="invalid_value")
        begin = _day(request.query.get("day", ""))
        wanted = pb.ListAuditEventsRequest(
            limit=PAGE,
            order="asc",
            not_before_ms=_milliseconds(begin),
            before_ms=_milliseconds(begin + timedelta(days=1)),
        )
        entries: list[dict[str, Any]] = []
        for _ in range(MOST // PAGE):
            found = await self._audit.ListAuditEvents(wanted)
            entries += [_entry(event) for event in found.events if kind in event.action]
            if not found.has_more:
                break
            wanted.after = found.events[-1].id
        return {"entries": entries}


def _day(text: str) -> datetime:
    """The first moment of a day, or of today; raises TinkerError 400."""
    try:
        day = date.fromisoformat(text) if text else datetime.fromtimestamp(now_seconds(), UTC)
        return datetime(day.year, day.month, day.day, tzinfo=UTC)
    except ValueError as error:
        raise TinkerError(400, "day must be YYYY-MM-DD.", code="invalid_value") from error


def _milliseconds(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)


def _entry(event: pb.AuditEvent) -> dict[str, Any]:
    named = ("id", "project_id", "user_id", "key_id", "resource", "outcome", "reason", "address")
    details: dict[str, Any] = {name: value for name in named if (value := getattr(event, name))}
    for name in ("before", "after"):
        if text := getattr(event, name):
            details[name] = orjson.loads(text)
    moment = datetime.fromtimestamp(event.at_ms / 1000, UTC)
    return {"timestamp": moment.isoformat(), "event": event.action, "event_details": details}
