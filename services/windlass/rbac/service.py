"""The servicers of rbac."""

import json
from dataclasses import asdict
from typing import Any

from windlass.api.rbac.v1 import rbac_pb2 as pb
from windlass.api.rbac.v1 import rbac_pb2_grpc as rpc
from windlass.api.users.v1 import users_pb2, users_pb2_grpc
from windlass.core.db.paging import cut, fitting, page_of, page_size
from windlass.core.rpc.auth import Principal, current
from windlass.core.rpc.model_scope import ModelScope
from windlass.policy import ROLES, narrowed, permissions_of
from windlass.rbac.chains import AuditChains
from windlass.rbac.checkpoints import CheckpointStore
from windlass.rbac.domain import decide
from windlass.rbac.filters import filter_of, valid_place
from windlass.rbac.retention import AuditRetention
from windlass.rbac.store import AuditStore
from windlass.rbac.tables import COLUMNS, STORED
from windlass.rbac.verification import AuditVerifier

EVENTS_LIMIT, VERIFY_EVENTS, CHECKPOINTS_LIMIT = 1000, 20_000, 500


class RbacServicer(rpc.RbacServiceServicer):
    """RbacService."""

    def __init__(self, audit: AuditStore, checkpoints: CheckpointStore, retention: AuditRetention):
        self._audit = audit
        self._retention = retention
        self._checkpoints = checkpoints
        self._verifier = AuditVerifier(audit, checkpoints)

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
        """The organization's audit log."""
        size = page_size(request.limit, max_limit=EVENTS_LIMIT)
        place = valid_place(request)
        rows = await self._audit.list(
            current().organization_id, filter_of(request), place, limit=size + 1
        )
        page, more = cut(rows, size)
        events, more = fitting(map(_message, page), more)
        if place.backward:
            events.reverse()
        return pb.ListAuditEventsResponse(events=events, has_more=more)

    async def VerifyAuditEvents(
        self, request: pb.VerifyAuditEventsRequest, context: Any
    ) -> pb.VerifyAuditEventsResponse:
        """Checks a part of the organization's chain."""
        events = page_size(request.limit, default=VERIFY_EVENTS, max_limit=VERIFY_EVENTS)
        verdict = await self._verifier.verify(
            current().organization_id, after=request.after, events=events
        )
        fault = verdict.fault
        return pb.VerifyAuditEventsResponse(
            sequence=verdict.sequence,
            hash=verdict.hash,
            checkpoint_sequence=verdict.checkpoint_sequence,
            fault=None if fault is None else pb.AuditFault(**asdict(fault)),
            has_more=verdict.has_more,
            dropped_sequence=verdict.dropped_sequence,
        )

    async def GetAuditRetention(
        self, request: pb.GetAuditRetentionRequest, context: Any
    ) -> pb.AuditRetention:
        """Returns how long the organization's events are kept."""
        days, dropped = await self._retention.get(current().organization_id)
        kept = max(days, self._retention.days)
        return pb.AuditRetention(days=days, kept_days=kept, dropped_sequence=dropped)

    async def PutAuditRetention(
        self, request: pb.PutAuditRetentionRequest, context: Any
    ) -> pb.AuditRetention:
        """Sets how long they are kept."""
        await self._retention.put(current().organization_id, request.days)
        return await self.GetAuditRetention(pb.GetAuditRetentionRequest(), context)

    async def ListAuditCheckpoints(
        self, request: pb.ListAuditCheckpointsRequest, context: Any
    ) -> pb.ListAuditCheckpointsResponse:
        """Signed checkpoints as they are stored, and the key that they are to be checked with."""
        size = page_size(request.limit, default=CHECKPOINTS_LIMIT, max_limit=CHECKPOINTS_LIMIT)
        organization_id = current().organization_id
        sequences = await self._checkpoints.sequences(organization_id)
        page, more = cut([one for one in sequences if one > request.after][: size + 1], size)
        read = [
            pb.AuditCheckpoint(sequence=one, jws=await self._checkpoints.text(organization_id, one))
            for one in page
        ]
        # Whoever writes the store may have left large ones.
        checkpoints, more = fitting(read, more)
        dropped = await self._checkpoints.dropped(organization_id)
        return pb.ListAuditCheckpointsResponse(
            checkpoints=checkpoints,
            has_more=more,
            public_key=json.dumps(self._checkpoints.key.jwk),
            dropped=dropped[0] if dropped else "",
        )


class RbacInternalServicer(rpc.RbacInternalServiceServicer):
    """RbacInternalService."""

    def __init__(self, chains: AuditChains, users: users_pb2_grpc.UsersInternalServiceAsyncStub):
        self._chains = chains
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
        # A users service of the release before tells the role alone.
        permissions = frozenset(found.permissions) or permissions_of(roles)
        principal = Principal(
            organization_id=found.organization_id,
            project_id=found.project_id,
            user_id=found.key.user_id,
            key_id=found.key.id,
            roles=roles,
            permissions=narrowed(permissions, found.key.scopes),
            is_weakened=found.weakened,
            fresh_until=found.fresh_until if found.HasField("fresh_until") else None,
            # A users service of the release before tells the key's alone.
            models=ModelScope.of(found.models or found.key.models),
        )
        return pb.AuthenticateResponse(
            principal=principal.to_proto(),
            expires_at=found.expires_at,
            networks=found.key.networks,
            certificate_demands=found.certificate_demands,
            organization_networks=found.organization_networks,
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
        await self._chains.append(map(_event, request.events))
        return pb.RecordAuditResponse()


def _event(message: pb.AuditEvent) -> dict[str, Any]:
    """An event as it is recorded: no text column holds a NUL, which callers may have sent."""
    said = {name: getattr(message, name) for name in COLUMNS}
    return {
        name: value.replace("\0", "\N{REPLACEMENT CHARACTER}") if isinstance(value, str) else value
        for name, value in said.items()
    }


def _message(row: Any) -> pb.AuditEvent:
    return pb.AuditEvent(**{name: getattr(row, name) for name in (*STORED, "hash")})
