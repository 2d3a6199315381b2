"""The queue of audit rows between the boundary and the rbac service."""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from windlass.api.rbac.v1 import rbac_pb2 as pb
from windlass.api.rbac.v1 import rbac_pb2_grpc
from windlass.core import auth, telemetry
from windlass.core.errors import Unauthenticated
from windlass.core.ids import new_id

log = telemetry.logger("audit")
BATCH = 500
# Rows kept while rbac is away; beyond, the oldest go, loudly.
QUEUE = 100_000
FLUSH_SECONDS = 0.1
# Callers choose what they name; a batch must stay below the limit of a message.
RESOURCE_LENGTH = 256


class AuditQueue:
    """Takes audit events without waiting, sends them in batches, keeps them while rbac is away."""

    def __init__(self, stub: Callable[[], rbac_pb2_grpc.RbacInternalServiceAsyncStub]):
        self._stub = stub
        self._events: deque[pb.AuditEvent] = deque(maxlen=QUEUE)

    def record(self, method: str, request: Any, outcome: str) -> None:
        """Queues one event about the current caller; never blocks."""
        try:
            principal = auth.current()
        except Unauthenticated:
            principal = auth.Principal(organization_id="")
        self.add(
            pb.AuditEvent(
                id=new_id("audit_"),
                at_ms=int(time.time() * 1000),
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
        """Queues one event; never blocks."""
        if len(self._events) == QUEUE:
            log.error("audit queue full; an event is lost")
        self._events.append(event)

    async def run(self) -> None:
        """Sends what is queued until cancelled, then sends the rest once more."""
        try:
            while True:
                await asyncio.sleep(FLUSH_SECONDS)
                await self._flush()
        finally:
            async with asyncio.timeout(5):
                await self._flush()

    async def _flush(self) -> None:
        while self._events:
            batch = [self._events[i] for i in range(min(BATCH, len(self._events)))]
            try:
                await self._stub().RecordAudit(pb.RecordAuditRequest(events=batch))
            except Exception as error:
                log.warning("audit rows wait", waiting=len(self._events), error=str(error))
                return
            for _ in batch:
                self._events.popleft()


def _resource(request: Any) -> str:
    """The id that a request names, by the field that ends in `_id` or is `id` or `name`."""
    for field, value in request.ListFields():
        if isinstance(value, str) and (field.name in ("id", "name") or field.name.endswith("_id")):
            return value[:RESOURCE_LENGTH]
    return ""
