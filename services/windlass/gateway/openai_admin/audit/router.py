"""/v1/organization/audit_logs."""

from typing import Annotated

from fastapi import Query, Request

from windlass.api.rbac.v1 import rbac_pb2 as pb
from windlass.api.rbac.v1 import rbac_pb2_grpc
from windlass.api.users.v1 import users_pb2_grpc
from windlass.bounds import LATEST
from windlass.core.app import App
from windlass.core.errors import InvalidArgument
from windlass.gateway.openai.rendering import Json, page
from windlass.gateway.openai_admin.audit.actors import KnownActors, ids_of, known
from windlass.gateway.openai_admin.audit.event_details import LoggedEvent
from windlass.gateway.openai_admin.audit.event_types import TENANT, type_of, types_named
from windlass.gateway.parameters import After, Limit, bracketed, bracketed_pairs, unknown_parameter
from windlass.gateway.resource_router import ResourceRouter

Before = Annotated[
    str, Query(max_length=512, description="Id of the first item of the page that follows.")
]


def audit_logs_router(app: App) -> ResourceRouter:
    """Events that OpenAI has a type for."""
    router = ResourceRouter(prefix="/organization/audit_logs", tags=["administration"])
    rbac = app.clients.stub(rbac_pb2_grpc.RbacServiceStub)
    users = app.clients.stub(users_pb2_grpc.UsersServiceStub)

    @router.get("")
    async def list_organization_audit_logs(
        request: Request,
        after: After = "",
        before: Before = "",
        limit: Limit = 0,
        tenant_only: bool = False,
    ) -> Json:
        """Lists what was done, and failed sign-ins, that OpenAI has a type for, newest first.

        `effective_at[gt|gte|lt|lte]`, `event_types`, `project_ids`, `actor_ids`, `actor_emails` and
        `resource_ids` may narrow them.
        """
        caller, emails = request.state.exchange.caller, bracketed(request, "actor_emails")
        people = await ids_of(users, caller, emails)
        asked = _asked(request, people, tenant_only=tenant_only)
        if asked is None or (emails and not people):
            return page([])
        asked.after, asked.before, asked.limit = after, before, limit
        answer = await rbac.ListAuditEvents(asked)
        found = await known(users, caller, answer.events)
        shown = (_render(LoggedEvent.of(row), found) for row in answer.events)
        return page([one for one in shown if one is not None], answer.has_more)

    return router


def _asked(
    request: Request, people: list[str], *, tenant_only: bool
) -> pb.ListAuditEventsRequest | None:
    """The question to the log; None where nothing is as it says. Raises InvalidArgument."""
    wanted = bracketed(request, "event_types")
    types = types_named(wanted)
    foreign = [one for one in wanted if not one.startswith(TENANT)]
    if tenant_only and foreign:
        raise InvalidArgument(
            f"{foreign[0]!r} is not a type of a tenant's event.", param="event_types"
        )
    from_ms, until_ms = _time(request)
    if tenant_only or not types or 0 < until_ms <= from_ms:
        return None
    return pb.ListAuditEventsRequest(
        matches=[one.match for one in types],
        project_ids=bracketed(request, "project_ids"),
        actor_ids=bracketed(request, "actor_ids"),
        user_ids=people,
        resources=bracketed(request, "resource_ids"),
        not_before_ms=from_ms,
        before_ms=until_ms,
    )


def _time(request: Request) -> tuple[int, int]:
    """Bounds of time, from and before, in milliseconds; 0: none. Raises InvalidArgument."""
    if bracketed(request, "effective_at"):
        raise InvalidArgument("Give effective_at[gt], [gte], [lt] or [lte].", param="effective_at")
    bounds: dict[str, int] = {}
    for name, value in bracketed_pairs(request, "effective_at").items():
        param = f"effective_at[{name[:8]}]"
        if name not in ("gt", "gte", "lt", "lte"):
            raise unknown_parameter(param)
        if not (value.isascii() and value.isdecimal() and len(value) <= 20) or int(value) > LATEST:
            raise InvalidArgument(f"{param} must be a time in Unix seconds.", param=param)
        bounds[name] = int(value)
    lower = [bounds.get("gte", 0), bounds["gt"] + 1 if "gt" in bounds else 0]
    upper = [bounds[name] + (name == "lte") for name in ("lt", "lte") if name in bounds]
    # A bound of 0 would be none.
    return max(lower) * 1000, max(1, min(upper) * 1000) if upper else 0


def _render(event: LoggedEvent, found: KnownActors) -> Json | None:
    kind = type_of(event)
    if kind is None:
        return None
    project = found.project(event.row)
    return {
        "id": event.row.id,
        "effective_at": event.row.at_ms // 1000,
        "type": kind.name,
        "actor": found.actor(event.row),
        **({} if project is None else {"project": project}),
        kind.name: kind.details(event),
    }
