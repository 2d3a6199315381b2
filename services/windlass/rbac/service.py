"""The servicers of rbac."""

from typing import Any

from windlass.api.rbac.v1 import rbac_pb2 as pb
from windlass.api.rbac.v1 import rbac_pb2_grpc as rpc
from windlass.api.users.v1 import users_pb2, users_pb2_grpc
from windlass.core.db.paging import cut, page_of, page_size
from windlass.core.rpc.auth import Principal, current
from windlass.policy import ROLES, narrowed, permissions_of
from windlass.rbac.domain import decide
from windlass.rbac.store import COLUMNS, AuditStore


class RbacServicer(rpc.RbacServiceServicer):
    """RbacService."""

    def __init__(self, audit: AuditStore):
        self._audit = audit

    async def Check(self, request: pb.CheckRequest, context: Any) -> pb.AuthorizeResponse:
        """Returns True if the caller may do something."""
        allowed, reason = decide(current(), request.permission, project_id=request.resource)
        return pb.AuthorizeResponse(allowed=allowed, reason=reason)

    async def ListRoles(self, request: pb.ListRolesRequest, context: Any) -> pb.ListRolesResponse:
        """Every role and what it grants."""
        page, more = page_of(tuple(ROLES), str, after=request.after, limit=request.limit)
        return pb.ListRolesResponse(
            roles=[pb.RoleDescription(name=name, permissions=sorted(ROLES[name])) for name in page],
            has_more=more,
        )

    async def ListAuditEvents(
        self, request: pb.ListAuditEventsRequest, context: Any
    ) -> pb.ListAuditEventsResponse:
        """The organization's audit log, newest first."""
        size = page_size(request.limit)
        rows = await self._audit.list(
            current().organization_id, after=request.after, limit=size + 1
        )
        page, more = cut(rows, size)
        events = [pb.AuditEvent(**{name: getattr(row, name) for name in COLUMNS}) for row in page]
        return pb.ListAuditEventsResponse(events=events, has_more=more)


class RbacInternalServicer(rpc.RbacInternalServiceServicer):
    """RbacInternalService."""

    def __init__(self, audit: AuditStore, users: users_pb2_grpc.UsersInternalServiceAsyncStub):
        self._audit = audit
        self._users = users

    async def Authenticate(
        self, request: pb.AuthenticateRequest, context: Any
    ) -> pb.AuthenticateResponse:
        """The principal of an API key."""
        found = await self._users.LookupApiKey(
            users_pb2.LookupApiKeyRequest(
                digest=request.key_digest,
                key_id=request.key_id,
                project_id=request.project_id,
                organization_id=request.organization_id,
            )
        )
        roles = tuple(
            users_pb2.Role.Name(role).removeprefix("ROLE_").lower() for role in found.roles
        )
        principal = Principal(
            organization_id=found.organization_id,
            project_id=found.project_id,
            user_id=found.key.user_id,
            key_id=found.key.id,
            roles=roles,
            permissions=narrowed(permissions_of(roles), found.key.scopes),
        )
        return pb.AuthenticateResponse(
            principal=principal.to_proto(),
            expires_at=found.expires_at,
            networks=found.key.networks,
        )

    async def Authorize(self, request: pb.AuthorizeRequest, context: Any) -> pb.AuthorizeResponse:
        """The one decision."""
        allowed, reason = decide(
            Principal.from_proto(request.principal),
            request.permission,
            organization_id=request.organization_id,
            project_id=request.project_id,
        )
        return pb.AuthorizeResponse(allowed=allowed, reason=reason)

    async def RecordAudit(
        self, request: pb.RecordAuditRequest, context: Any
    ) -> pb.RecordAuditResponse:
        """Appends audit rows; idempotent by id."""
        await self._audit.append(
            {name: getattr(event, name) for name in COLUMNS} for event in request.events
        )
        return pb.RecordAuditResponse()
