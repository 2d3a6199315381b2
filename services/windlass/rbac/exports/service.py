"""The servicer of destinations of audit logs."""

from typing import Any

from windlass.api.rbac.v1 import rbac_pb2 as pb
from windlass.api.rbac.v1 import rbac_pb2_grpc as rpc
from windlass.core.clock import now_seconds
from windlass.core.db.paging import cut, page_size
from windlass.core.db.wake import Wake
from windlass.core.errors import PermissionDenied
from windlass.core.ids import new_id
from windlass.core.outbound.signing import new_secret
from windlass.core.outbound.urls import AddressRules
from windlass.core.rpc.auth import current
from windlass.rbac.exports.destinations import BUCKET, WEBHOOK, Destination, checked
from windlass.rbac.exports.exporter import TOPIC
from windlass.rbac.exports.store import DestinationStore

# Whoever chooses where a log goes reads it there.
_READ = "audit.read"
_SHOWN = (
    "id", "organization_id", "name", "kind", "url", "bucket", "prefix", "region", "access_key_id",
    "created_at", "sequence", "delivered_at", "failures", "error",
)  # fmt: skip


class AuditDestinationsServicer(rpc.AuditDestinationsServiceServicer):
    """AuditDestinationsService."""

    def __init__(self, destinations: DestinationStore, rules: AddressRules, wake: Wake):
        self._destinations = destinations
        self._rules = rules
        self._wake = wake

    async def CreateAuditDestination(
        self, request: pb.CreateAuditDestinationRequest, context: Any
    ) -> pb.CreateAuditDestinationResponse:
        """A new destination; the secret of a webhook is shown here alone.

        Raises PermissionDenied for a caller who may not read the log that goes there.
        """
        if not current().may(_READ):
            raise PermissionDenied(f"This needs the permission {_READ}: the log goes there.")
        asked, organization_id = checked(request, self._rules), current().organization_id
        destination = Destination(
            id=new_id("auditdest_"),
            organization_id=organization_id,
            name=asked.name,
            kind=asked.kind,
            url=asked.url,
            bucket=asked.bucket,
            prefix=asked.prefix,
            region=asked.region if asked.kind == BUCKET else "",
            access_key_id=asked.access_key_id,
            created_at=now_seconds(),
        )
        secret = new_secret() if asked.kind == WEBHOOK else ""
        sealed = secret.encode() or bytes(asked.secret_access_key)
        await self._destinations.create(destination, sealed, from_now=asked.from_now)
        self._wake.touch(TOPIC)
        row = await self._destinations.get(organization_id, destination.id)
        return pb.CreateAuditDestinationResponse(destination=_message(row), secret=secret)

    async def ListAuditDestinations(
        self, request: pb.ListAuditDestinationsRequest, context: Any
    ) -> pb.ListAuditDestinationsResponse:
        """The organization's, newest first."""
        size = page_size(request.limit)
        rows = await self._destinations.list(
            current().organization_id, after=request.after, limit=size + 1
        )
        page, more = cut(rows, size)
        return pb.ListAuditDestinationsResponse(destinations=map(_message, page), has_more=more)

    async def GetAuditDestination(
        self, request: pb.GetAuditDestinationRequest, context: Any
    ) -> pb.AuditDestination:
        """Returns one, with how far it has come."""
        row = await self._destinations.get(current().organization_id, request.destination_id)
        return _message(row)

    async def DeleteAuditDestination(
        self, request: pb.DeleteAuditDestinationRequest, context: Any
    ) -> pb.DeleteAuditDestinationResponse:
        """Ends its deliveries."""
        await self._destinations.delete(current().organization_id, request.destination_id)
        return pb.DeleteAuditDestinationResponse()


def _message(row: Any) -> pb.AuditDestination:
    return pb.AuditDestination(
        **{name: getattr(row, name) for name in _SHOWN},
        behind=max(0, row.last - row.sequence),
        next_at=row.not_before_ms // 1000 if row.failures else 0,
    )
