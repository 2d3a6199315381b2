"""The spool of audit rows between the boundary and the rbac service."""

import asyncio
import base64
import binascii
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from windlass.api.rbac.v1 import rbac_pb2 as pb
from windlass.api.rbac.v1 import rbac_pb2_grpc
from windlass.core import telemetry
from windlass.core.clock import now_ms
from windlass.core.errors import Unauthenticated
from windlass.core.ids import new_id
from windlass.core.rpc import auth
from windlass.core.spool import DurableSpool, read_lines
from windlass.metrics.outbox import AGE_SECONDS

log = telemetry.logger("audit")
BATCH = 500
FLUSH_SECONDS = 0.1
RETRY_SECONDS = 1.0
LAST_SECONDS = 5.0
# Callers choose what they name; a batch must stay below the limit of a message.
RESOURCE_LENGTH = 256


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

    def record(self, method: str, request: Any, outcome: str) -> None:
        """Spools one event about the current caller; never waits."""
        try:
            principal = auth.current()
        except Unauthenticated:
            principal = auth.Principal(organization_id="")
        self.add(
            pb.AuditEvent(
                id=new_id("audit_"),
                at_ms=now_ms(),
                organization_id=principal.organization_id,
                project_id=principal.project_id,
                user_id=principal.user_id,
                key_id=principal.key_id,
                action=method.lstrip("/"),
                resource=_resource(request),
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

    async def measure(self) -> None:
        """Shows operators how old the oldest row is that has not arrived."""
        AGE_SECONDS.labels("audit").set(await asyncio.to_thread(self._spool.age_seconds))

    async def run(self) -> None:
        """Sends what is spooled until cancelled, then sends the rest once more."""
        arrived = self._spool.arrived
        arrived.set()
        try:
            while True:
                await arrived.wait()
                await asyncio.sleep(FLUSH_SECONDS)
                arrived.clear()
                if not await self._flush():
                    arrived.set()
                    await asyncio.sleep(RETRY_SECONDS)
        finally:
            async with asyncio.timeout(LAST_SECONDS):
                await self._flush()

    async def _flush(self) -> bool:
        self._spool.flush()
        self._spool.seal()
        await self._spool.synced()
        try:
            for path in self._spool.sealed():
                await self._send(path)
        except grpc.aio.AioRpcError as error:
            log.warning("audit_delivery_deferred", code=error.code().name, error=error.details())
            return False
        return True

    async def _send(self, path: Path) -> None:
        try:
            events = _events(path)
            while batch := list(islice(events, BATCH)):
                await self._stub().RecordAudit(pb.RecordAuditRequest(events=batch))
        except FileNotFoundError:
            # Another process of this folder was faster.
            return
        path.unlink(missing_ok=True)


def _events(path: Path) -> Iterator[pb.AuditEvent]:
    for body in read_lines(path):
        try:
            yield pb.AuditEvent.FromString(base64.b64decode(body, validate=True))
        except (binascii.Error, DecodeError):
            log.error("audit_row_damaged", segment=path.name)


def _resource(request: Any) -> str:
    """The id that a request names, by the field that ends in `_id` or is `id` or `name`."""
    for field, value in request.ListFields():
        if isinstance(value, str) and (field.name in ("id", "name") or field.name.endswith("_id")):
            return value[:RESOURCE_LENGTH]
    return ""
