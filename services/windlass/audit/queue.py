"""The spool of audit rows between the boundary and the rbac service."""

import asyncio
import base64
import binascii
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError, Message

from windlass.api.rbac.v1 import rbac_pb2 as pb
from windlass.api.rbac.v1 import rbac_pb2_grpc
from windlass.audit.details import details
from windlass.audit.sums import WINDOW_SECONDS, EventSums
from windlass.core import telemetry
from windlass.core.clock import now_ms
from windlass.core.errors import AppError, Unauthenticated
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
        self._sums = EventSums()
        self.shipper = SpoolShipper("audit", self._spool, self._send, flush_seconds=FLUSH_SECONDS)

    async def run(self) -> None:
        """Sends, and writes sums, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.shipper.run())
            group.create_task(self._sum_up())

    def record(
        self, method: str, request: Any, outcome: str, reason: str = "", *, answer: Any = None
    ) -> None:
        """Spools an event about the current caller for each thing of the call; never waits."""
        try:
            principal = auth.current()
        except Unauthenticated:
            principal = auth.Principal(organization_id="")
        made = _made(request, answer)
        changes = audited.noted() if outcome == "OK" else (audited.AuditedChange(),)
        for change in changes:
            before, after = details(change.before, change.after)
            self.add(
                pb.AuditEvent(
                    id=new_id("audit_"),
                    at_ms=now_ms(),
                    organization_id=principal.organization_id,
                    project_id=principal.project_id,
                    user_id=principal.user_id,
                    key_id=principal.key_id,
                    action=method.lstrip("/"),
                    resource=change.resource[:RESOURCE_LENGTH] or made or _resource(request),
                    outcome=outcome,
                    request_id=telemetry.request_id.get(),
                    address=auth.client_address.get(),
                    reason=reason,
                    before=before,
                    after=after,
                )
            )

    def refuse(self, principal: auth.Principal, action: str, error: AppError, address: str) -> None:
        """Spools the refusal of a known caller that no RPC was asked about; never waits."""
        self.add(
            pb.AuditEvent(
                id=new_id("audit_"),
                at_ms=now_ms(),
                organization_id=principal.organization_id,
                project_id=principal.project_id,
                user_id=principal.user_id,
                key_id=principal.key_id,
                action=action[:RESOURCE_LENGTH],
                outcome=error.code.name,
                request_id=telemetry.request_id.get(),
                address=address,
                reason=error.reason,
            )
        )

    def note(
        self, organization_id: str, project_id: str, action: str, change: audited.AuditedChange
    ) -> None:
        """Spools what a service does for a tenant without a caller of theirs; never waits."""
        before, after = details(change.before, change.after)
        self.add(
            pb.AuditEvent(
                id=new_id("audit_"),
                at_ms=now_ms(),
                organization_id=organization_id,
                project_id=project_id,
                action=action,
                resource=change.resource[:RESOURCE_LENGTH],
                outcome="OK",
                request_id=telemetry.request_id.get(),
                before=before,
                after=after,
            )
        )

    def add(self, event: pb.AuditEvent) -> None:
        """Hands one event to the system, so that it outlives this process; never waits.

        Refusals and reads that flood become one event with their number, at the end of a window.
        """
        if self._sums.is_full:
            self._write_sums()
        if self._sums.admits(event):
            self._append(event)

    async def kept(self) -> None:
        """Return when what was recorded before outlives the machine's power as well."""
        await self._spool.synced()

    def _append(self, event: pb.AuditEvent) -> None:
        self._spool.append(base64.b64encode(event.SerializeToString()))

    async def _sum_up(self) -> None:
        try:
            while True:
                await asyncio.sleep(WINDOW_SECONDS)
                self._write_sums()
        finally:
            self._write_sums()

    def _write_sums(self) -> None:
        for event in self._sums.take():
            self._append(event)

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


def _creates(request: Any) -> bool:
    return type(request).__name__.startswith("Create")


def _made(request: Any, answer: Any) -> str:
    """The id of what a call has created: of the answer, or of the first message in it."""
    if answer is None or not _creates(request):
        return ""
    inner = [value for field, value in answer.ListFields() if isinstance(value, Message)]
    ids = (getattr(message, "id", "") for message in (answer, *inner))
    return str(next(filter(None, ids), ""))[:RESOURCE_LENGTH]


def _resource(request: Any) -> str:
    """The id that a request names: of what is in a project, before that of the project.

    A name is one where nothing else is the id. What is created has another, and its name is
    erased when its tenant leaves, which no event can be.
    """
    plain = ("id",) if _creates(request) else ("id", "name")
    ids = [
        (field.name in _SCOPES, value[:RESOURCE_LENGTH])
        for field, value in request.ListFields()
        if isinstance(value, str) and (field.name in plain or field.name.endswith("_id"))
    ]
    return min(ids, key=lambda one: one[0], default=(False, ""))[1]
