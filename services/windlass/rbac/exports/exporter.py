"""Deliveries of audit events to destinations: leased rows, in order, at least once.

The cursor of a destination moves after its receiver has a batch, never before and never over an
event. One that fails waits by itself, and no other for it.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from windlass.core import telemetry
from windlass.core.backoff import doubled
from windlass.core.clock import now_ms, now_seconds
from windlass.core.db import Database
from windlass.core.db.leases import Row, claim, held, no_rows, released, run_loop
from windlass.core.db.wake import Wake
from windlass.core.killpoints import reach
from windlass.metrics.rbac import AUDIT_EXPORTS
from windlass.rbac.exports.destinations import BUCKET
from windlass.rbac.exports.senders.port import EventBatch, ExportSender, Undelivered
from windlass.rbac.exports.store import DestinationStore, destination_of
from windlass.rbac.store import AuditStore
from windlass.rbac.tables import audit_chains, audit_destinations

log = telemetry.logger("audit")
TOPIC = "audit.exports"
POLL_SECONDS = 5.0
# At once, of this process.
LANES = 16
LEASE_SECONDS = 60.0
BATCH = 500
RETRY_DELAY_MS = 5_000
MAX_RETRY_DELAY_MS = 3_600_000
# Between two objects in a bucket, which would be many and small.
BUCKET_PAUSE_MS = 60_000
# Said of an error that no receiver made.
OUR_FAULT = "this server failed to send it; its operator's log says why"


class AuditExporter:
    """Delivers to all destinations; any number of processes may."""

    def __init__(
        self,
        database: Database,
        audit: AuditStore,
        destinations: DestinationStore,
        senders: Mapping[str, ExportSender],
    ):
        self._database = database
        self._audit = audit
        self._destinations = destinations
        self._senders = senders
        self._sending: set[asyncio.Task[None]] = set()

    async def run(self, wake: Wake) -> None:
        """Delivers until cancelled."""
        try:
            await run_loop(
                "audit.exports",
                wake.listen(TOPIC),
                self.deliver_some,
                poll_seconds=POLL_SECONDS,
                resting=no_rows(self._database, audit_destinations.c.created_at >= 0),
            )
        finally:
            for task in self._sending:
                task.cancel()
            if self._sending:
                await asyncio.wait(self._sending)

    async def deliver_some(self) -> bool:
        """Begins what is due and has a lane; whether anything is under way."""
        rows = 0
        if free := LANES - len(self._sending):
            token, found = await claim(
                self._database,
                audit_destinations,
                sa.and_(audit_destinations.c.not_before_ms <= now_ms(), _is_behind()),
                limit=free,
                seconds=LEASE_SECONDS,
                order=audit_destinations.c.not_before_ms,
            )
            rows = len(found)
            for row in found:
                task = asyncio.create_task(self._deliver(row, token))
                self._sending.add(task)
                task.add_done_callback(self._sending.discard)
        if self._sending:
            await asyncio.wait(self._sending, timeout=1.0, return_when=asyncio.FIRST_COMPLETED)
        return bool(rows or self._sending)

    async def _deliver(self, row: Row, token: str) -> None:
        try:
            try:
                batch = await self._batch(row)
                destination = destination_of(row)
                sender = self._senders[destination.kind]
                await sender.send(destination, self._destinations.secret(row), batch)
            except Undelivered as error:
                await self._failed(row, token, str(error))
            except Exception as error:
                log.error("audit_export_failed", destination=row.id, exc_info=error)
                await self._failed(row, token, OUR_FAULT)
            else:
                reach("rbac.audit_exported")
                await self._delivered(row, token, batch)
        except Exception as error:
            # Its lease ends, and somebody tries again.
            log.error("audit_export_not_counted", destination=row.id, exc_info=error)

    async def _batch(self, row: Row) -> EventBatch:
        """Reads what follows the cursor; less after failures, should it have been too much."""
        most = max(1, BATCH >> min(row.failures, 16))
        events = await self._audit.following(row.organization_id, row.sequence, limit=most)
        if not events or events[0]["sequence"] != row.sequence + 1:
            raise LookupError(f"the event {row.sequence + 1} of {row.organization_id} is missing")
        return EventBatch(events)

    async def _delivered(self, row: Row, token: str, batch: EventBatch) -> None:
        AUDIT_EXPORTS.labels(row.kind, "delivered").inc(len(batch.events))
        pause = BUCKET_PAUSE_MS if row.kind == BUCKET and len(batch.events) < BATCH else 0
        await self._apply(
            row,
            token,
            sequence=batch.events[-1]["sequence"],
            delivered_at=now_seconds(),
            failures=0,
            error="",
            not_before_ms=now_ms() + pause,
        )

    async def _failed(self, row: Row, token: str, problem: str) -> None:
        AUDIT_EXPORTS.labels(row.kind, "failed").inc()
        log.info("audit_export_undelivered", destination=row.id, problem=problem)
        pause = doubled(RETRY_DELAY_MS, row.failures, longest=MAX_RETRY_DELAY_MS)
        await self._apply(
            row,
            token,
            failures=row.failures + 1,
            error=problem,
            not_before_ms=now_ms() + pause,
        )

    async def _apply(self, row: Row, token: str, **values: Any) -> None:
        mine = audit_destinations.c.id == row.id, held(audit_destinations, token)
        statement = audit_destinations.update().where(*mine).values(**values, **released())
        async with self._database.begin() as connection:
            await connection.execute(statement)


def _is_behind() -> sa.ColumnElement[bool]:
    return sa.exists().where(
        audit_chains.c.id == audit_destinations.c.organization_id,
        audit_chains.c.sequence > audit_destinations.c.sequence,
    )
