"""Audit rows of requests to clusters: the caller, the request and its outcome."""

from windlass.api.rbac.v1 import rbac_pb2 as pb
from windlass.audit import RESOURCE_LENGTH, AuditQueue
from windlass.core.addresses import Address
from windlass.core.clock import now_ms
from windlass.core.ids import new_id
from windlass.key_cache import KnownKey
from windlass.sessions.access.callers import Identity
from windlass.sessions.access.kube_request import KubeRequest
from windlass.sessions.access.policy import verb_of

# An HTTP status as the outcome of a row, which is named as gRPC names it.
_OUTCOMES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    409: "FAILED_PRECONDITION",
    499: "CANCELLED",
    429: "RESOURCE_EXHAUSTED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


def outcome(status: int) -> str:
    """The outcome of an answer with this HTTP status."""
    if status < 400:
        return "OK"
    return _OUTCOMES.get(status, "INVALID_ARGUMENT" if status < 500 else "INTERNAL")


class AccessAudit:
    """Writes a row for each request of a known caller, refused or not."""

    def __init__(self, queue: AuditQueue):
        self._queue = queue

    def record(
        self,
        identity: Identity,
        caller: KnownKey | None,
        cluster_id: str,
        request: KubeRequest | None,
        status: int,
        address: Address | None,
    ) -> None:
        """Records a request that was answered with `status`; `request` None: it has no meaning."""
        event = pb.AuditEvent(
            id=new_id("audit_"),
            at_ms=now_ms(),
            organization_id=identity.organization_id,
            project_id=identity.project_id,
            user_id=caller.principal.user_id if caller else "",
            key_id=identity.key_id,
            action=f"kubernetes/{verb_of(request)} {request.kind}" if request else "kubernetes/?",
            resource=_resource(cluster_id, request),
            outcome=outcome(status),
            request_id=new_id("req_"),
            address=str(address or ""),
        )
        event.action = event.action[:RESOURCE_LENGTH]
        self._queue.add(event)


def _resource(cluster_id: str, request: KubeRequest | None) -> str:
    parts = [f"clusters/{cluster_id}"]
    if request is not None and request.is_resource:
        if request.namespace:
            parts.append(f"namespaces/{request.namespace}")
        if request.resource != "namespaces":
            parts.append(request.resource)
            parts += [part for part in (request.name, request.subresource) if part]
    return "/".join(parts)[:RESOURCE_LENGTH]
