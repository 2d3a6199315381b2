"""The spool of audit rows between the boundary and the rbac service."""

import base64
import binascii
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError

from windlass.api.rbac.v1 import rbac_pb2 as pb
from windlass.api.rbac.v1 import rbac_pb2_grpc
from windlass.core import telemetry
from windlass.core.clock import now_ms
from windlass.core.errors import Unauthenticated
from windlass.core.ids import new_id
from windlass.core.rpc import audited, auth
from windlass.core.spool import DurableSpool, SpoolShipper, read_lines

log = telemetry.logger("audit")
BATCH = 500
FLUSH_SECONDS = 0.1
# Callers choose what they name; a batch must stay below the limit of a message.
RESOURCE_LENGTH = 256
_SCOPES = ("project_id", "organization_id")


class AuditQueue:
    """Takes audit events, keeps them on disk until rbac has them, sends them in batches.

    Rows that a killed process left are sent by the next one of the same folder; a row that comes
    twice is one, by its id.
    """

    def __init__(
        self, stub: Callable[[], rbac_pb2_grpc.RbacInternalServiceAsyncStub], folder: Path
    ):
        self._stub = stub
        self._spool = DurableSpool(folder)
        self.shipper = SpoolShipper("audit", self._spool, self._send, flush_seconds=FLUSH_SECONDS)

    def record(self, method: str, request: Any, outcome: str) -> None:
        """Spools an event about the current caller for each thing of the call; never waits."""
        try:
            principal = auth.current()
        except Unauthenticated:
            principal = auth.Principal(organization_id="")
        more = audited.noted() if outcome == "OK" else ()
        for resource in (_resource(request), *more):
            self.add(
                pb.AuditEvent(
                    id=new_id("audit_"),
                    at_ms=now_ms(),
                    organization_id=principal.organization_id,
                    project_id=principal.project_id,
                    user_id=principal.user_id,
                    key_id=principal.key_id,
                    action=method.lstrip("/"),
                    resource=resource,
                    outcome=outcome,
                    request_id=telemetry.request_id.get(),
                )
            )

    def add(self, event: pb.AuditEvent) -> None:
        """Hands one event to the system, so that it outlives this process; never waits."""
        self._spool.append(base64.b64encode(event.SerializeToString()))

    async def kept(self) -> None:
        """Return when what was recorded before outlives the machine's power as well."""
        await self._spool.synced()

    async def _send(self, path: Path) -> None:
        events = _events(path)
        while batch := list(islice(events, BATCH)):
            await self._stub().RecordAudit(pb.RecordAuditRequest(events=batch))


def _events(path: Path) -> Iterator[pb.AuditEvent]:
    for body in read_lines(path):
        try:
            yield pb.AuditEvent.FromString(base64.b64decode(body, validate=True))
        except (binascii.Error, DecodeError):
            log.error("audit_row_damaged", segment=path.name)


def _resource(request: Any) -> str:
    """The id that a request names: of what is in a project, before that of the project."""
    ids = [
        (field.name in _SCOPES, value[:RESOURCE_LENGTH])
        for field, value in request.ListFields()
        if isinstance(value, str) and (field.name in ("id", "name") or field.name.endswith("_id"))
    ]
    return min(ids, key=lambda one: one[0], default=(False, ""))[1]
