"""Retention: old events are dropped up to a checkpoint, and the rest stays provable from there.

A signed note of what was dropped is stored first, then the chain says so, and only then may rows
be deleted: so whoever can write the database alone deletes nothing that is not found.
"""

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from windlass.audit_chain.links import GENESIS
from windlass.audit_chain.walk import ChainCheckpoint, ChainFault, ChainWalk, CheckpointForged
from windlass.core import telemetry
from windlass.core.clock import now_ms, now_seconds
from windlass.core.db import Database
from windlass.core.db.leases import Row, claim, held, released
from windlass.core.errors import FailedPrecondition, InvalidArgument
from windlass.core.killpoints import reach
from windlass.core.rpc import audited
from windlass.core.rpc.interceptor import AuditSink
from windlass.metrics.rbac import AUDIT_DROPPED, AUDIT_FAULTS
from windlass.rbac.checkpoints import CheckpointStore
from windlass.rbac.store import AuditStore
from windlass.rbac.tables import audit_chains, audit_destinations, audit_events

log = telemetry.logger("audit")
LEASE_SECONDS = 300.0
# Between two looks at a chain.
LOOK_SECONDS = 3600
# Of one round, and of one transaction.
MOST_DROPPED, MOST_DELETED = 100_000, 5_000
DAY_MS = 86_400_000
MAX_DAYS = 36_500
_ACTION = "audit/drop"


class _Broken(Exception):
    """A chain that is not right, of which nothing is dropped."""

    def __init__(self, fault: ChainFault):
        super().__init__(fault.message)
        self.fault = fault


class AuditRetention:
    """Drops events that are older than an installation and their organization want them kept."""

    def __init__(
        self,
        database: Database,
        audit: AuditStore,
        checkpoints: CheckpointStore,
        log: AuditSink,
        *,
        days: int,
    ):
        """`days` is the installation's; 0: all are kept."""
        self._database = database
        self._audit = audit
        self._checkpoints = checkpoints
        self._log = log
        self.days = days

    async def get(self, organization_id: str) -> tuple[int, int]:
        """The organization's days, and the last event that was dropped."""
        chains = audit_chains.c
        query = sa.select(chains.retention_days, chains.dropped_sequence)
        async with self._database.autocommit() as connection:
            row = (await connection.execute(query.where(chains.id == organization_id))).first()
        return (row.retention_days, row.dropped_sequence) if row is not None else (0, 0)

    async def put(self, organization_id: str, days: int) -> None:
        """Sets the organization's days.

        Raises InvalidArgument for less than the installation's, and FailedPrecondition where that
        keeps all.
        """
        if days and not self.days:
            raise FailedPrecondition("This installation keeps all events, for ever.")
        if days and not self.days <= days <= MAX_DAYS:
            raise InvalidArgument(
                f"days must be between {self.days} and {MAX_DAYS}, or 0 for as long as the "
                "installation keeps events.",
                param="days",
            )
        new = {"id": organization_id, "sequence": 0, "hash": GENESIS, "retention_days": days}
        statement = insert(audit_chains).values(new)
        async with self._database.begin() as connection:
            query = sa.select(audit_chains.c.retention_days).where(
                audit_chains.c.id == organization_id
            )
            before = (await connection.execute(query.with_for_update())).scalar() or 0
            await connection.execute(
                statement.on_conflict_do_update(
                    index_elements=["id"], set_={"retention_days": days, "retained_at": 0}
                )
            )
        audited.change({"days": before}, {"days": days}, resource=organization_id)

    async def once(self) -> bool:
        """Drops what is due of a chain; returns True if there may be more."""
        chains = audit_chains.c
        is_due = sa.and_(
            sa.or_(chains.sequence > chains.dropped_sequence, _has_leftovers()),
            chains.retained_at <= now_seconds() - LOOK_SECONDS,
        )
        if not self.days:
            return False
        token, rows = await claim(
            self._database, audit_chains, is_due, limit=1, seconds=LEASE_SECONDS
        )
        for row in rows:
            more = False
            try:
                more = await self._drop(row, token)
            except _Broken as broken:
                AUDIT_FAULTS.inc()
                log.error(
                    "audit_chain_broken",
                    organization_id=row.id,
                    sequence=broken.fault.sequence,
                    kind=broken.fault.kind,
                )
            at = 0 if more else now_seconds()
            async with self._database.begin() as connection:
                await connection.execute(
                    audit_chains.update()
                    .where(audit_chains.c.id == row.id, held(audit_chains, token))
                    .values(retained_at=at, **released())
                )
        return bool(rows)

    async def _drop(self, row: Row, token: str) -> bool:
        """Drops some events of a chain; returns True if there may be more. Raises _Broken."""
        days = max(self.days, row.retention_days)
        try:
            start = await self._start(row)
            # What a process left that ended after it had dropped them.
            await self._delete(row.id, row.dropped_sequence)
            last = await self._last_old(row, now_ms() - days * DAY_MS)
            checkpoint = await self._checkpoint(row.id, row.dropped_sequence, last)
        except CheckpointForged as error:
            raise _Broken(ChainFault(0, "forged_checkpoint", str(error))) from error
        if checkpoint is None:
            return False
        # What is to be dropped nobody could verify afterwards.
        start.checkpoints = {checkpoint.sequence: checkpoint.hash}
        fault = await self._audit.walk(start, until=checkpoint.sequence) or start.end()
        if fault is not None:
            raise _Broken(fault)
        await self._checkpoints.note_dropped(checkpoint)
        reach("rbac.audit_dropped")
        async with self._database.begin() as connection:
            if not await _may_drop(connection, row.id, checkpoint.sequence):
                return False
            mine = audit_chains.c.id == row.id, held(audit_chains, token)
            await connection.execute(
                audit_chains.update().where(*mine).values(dropped_sequence=checkpoint.sequence)
            )
        told = {"first": row.dropped_sequence + 1, "last": checkpoint.sequence, "days": days}
        self._log.note(
            row.id, "", _ACTION, audited.AuditedChange(str(checkpoint.sequence), told, None)
        )
        await self._delete(row.id, checkpoint.sequence)
        AUDIT_DROPPED.inc(checkpoint.sequence - row.dropped_sequence)
        return True

    async def _last_old(self, row: Row, before_ms: int) -> int:
        """The last event of those at the beginning that are all older, and that every destination
        has.
        """
        events = audit_events.c
        most = row.dropped_sequence + MOST_DROPPED
        own = sa.and_(events.organization_id == row.id, events.sequence > row.dropped_sequence)
        young = (
            sa.select(events.sequence)
            .where(own, events.sequence <= most, events.at_ms >= before_ms)
            .order_by(events.sequence)
            .limit(1)
        )
        async with self._database.autocommit() as connection:
            first_young: int | None = (await connection.execute(young)).scalar()
            delivered = await _delivered(connection, row.id)
        last: int = min(most, row.sequence) if first_young is None else first_young - 1
        return last if delivered is None else min(last, delivered)

    async def _checkpoint(
        self, organization_id: str, dropped: int, last: int
    ) -> ChainCheckpoint | None:
        """The newest checkpoint up to an event, beyond what was dropped already."""
        sequences = await self._checkpoints.sequences(organization_id)
        fit = [one for one in sequences if dropped < one <= last]
        return await self._checkpoints.read(organization_id, fit[-1]) if fit else None

    async def _start(self, row: Row) -> ChainWalk:
        """A walk from what was dropped already, as a signed note says; raises _Broken."""
        found = await self._checkpoints.dropped(row.id)
        note = found[1] if found else ChainCheckpoint(row.id, 0, GENESIS, 0)
        if row.dropped_sequence > note.sequence:
            said = "There is no signed note that these were dropped."
            raise _Broken(ChainFault(note.sequence + 1, "removed", said))
        return ChainWalk(row.id, sequence=note.sequence, hash=note.hash)

    async def _delete(self, organization_id: str, last: int) -> None:
        """Deletes dropped events, in small transactions."""
        events = audit_events.c
        own = sa.and_(events.organization_id == organization_id, events.sequence <= last)
        while True:
            oldest = (
                sa.select(events.sequence).where(own).order_by(events.sequence).limit(MOST_DELETED)
            )
            statement = audit_events.delete().where(own, events.sequence.in_(oldest))
            async with self._database.begin() as connection:
                if (await connection.execute(statement)).rowcount < MOST_DELETED:
                    return


def _has_leftovers() -> sa.ColumnElement[bool]:
    """True for a chain with events that were dropped and are not deleted yet."""
    return sa.exists().where(
        audit_events.c.organization_id == audit_chains.c.id,
        audit_events.c.sequence <= audit_chains.c.dropped_sequence,
    )


async def _delivered(connection: AsyncConnection, organization_id: str) -> int | None:
    """The last event that all destinations have; None without destinations."""
    least = sa.func.min(audit_destinations.c.sequence)
    query = sa.select(least).where(audit_destinations.c.organization_id == organization_id)
    found: int | None = (await connection.execute(query)).scalar()
    return found


async def _may_drop(connection: AsyncConnection, organization_id: str, sequence: int) -> bool:
    """Returns True if no destination was made meanwhile that has not got what is to be dropped.

    The chain is locked until the transaction's end, as whoever makes one locks it.
    """
    lock = sa.select(audit_chains.c.id).where(audit_chains.c.id == organization_id)
    await connection.execute(lock.with_for_update())
    delivered = await _delivered(connection, organization_id)
    return delivered is None or delivered >= sequence
