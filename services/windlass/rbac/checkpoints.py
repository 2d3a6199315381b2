"""Signed checkpoints of the chains, in the object store.

Whoever can write the database alone can make none, so what they say of a chain is beyond such
a person's reach. Each is signed only after the events since the one before were walked from
that one's hash: so the newest vouches for all before.
"""

from collections.abc import AsyncIterator

import sqlalchemy as sa

from windlass.audit_chain.checkpoints import CheckpointKey
from windlass.audit_chain.walk import ChainCheckpoint, ChainFault, ChainWalk, CheckpointForged
from windlass.core import telemetry
from windlass.core.clock import now_ms, now_seconds
from windlass.core.db import Database
from windlass.core.db.leases import claim, held, released
from windlass.core.objects import ObjectStore
from windlass.metrics.rbac import AUDIT_FAULTS
from windlass.rbac.store import AuditStore
from windlass.rbac.tables import audit_chains

log = telemetry.logger("audit")
LEASE_SECONDS = 300.0
# A chain gets a checkpoint after so many events, or so long after the one before.
MOST_EVENTS, MOST_SECONDS = 10_000, 600
_DIGITS = 20
_LAST = 2**63 - 1
_MAX_BYTES = 4096
# In the place of an organization's id, which has no such character: events of nobody known.
_NOBODY = "~"


class CheckpointStore:
    """The checkpoints of all organizations, by organization and sequence."""

    def __init__(self, objects: ObjectStore, key: CheckpointKey):
        self._objects = objects
        self.key = key

    async def sequences(self, organization_id: str) -> list[int]:
        """Sequences that there are checkpoints of, whoever made them, in order."""
        found = []
        async for info in self._objects.list(_prefix(organization_id)):
            name = info.key.rpartition("/")[2].removesuffix(".jws")
            if len(name) == _DIGITS and name.isdecimal() and int(name) <= _LAST:
                found.append(int(name))
        return found

    async def text(self, organization_id: str, sequence: int) -> str:
        """A checkpoint as it is stored; raises ObjectNotFound."""
        return await self._text(_key(organization_id, sequence))

    async def _text(self, key: str) -> str:
        content = b""
        async for chunk in self._objects.get(key, end=_MAX_BYTES):
            content += chunk
        return content.decode("latin-1")

    async def read(self, organization_id: str, sequence: int) -> ChainCheckpoint:
        """Raises CheckpointForged unless we signed it for this place; ObjectNotFound."""
        text = await self.text(organization_id, sequence)
        checkpoint = self.key.verify(text, organization_id=organization_id)
        if checkpoint.sequence != sequence:
            raise CheckpointForged(f"signed for the sequence {checkpoint.sequence}")
        return checkpoint

    async def newest(self, organization_id: str) -> ChainCheckpoint | None:
        """The one with the highest sequence; raises as `read` does."""
        sequences = await self.sequences(organization_id)
        return await self.read(organization_id, sequences[-1]) if sequences else None

    async def write(self, checkpoint: ChainCheckpoint) -> None:
        """Signs and stores one."""
        key = _key(checkpoint.organization_id, checkpoint.sequence)
        await self._objects.put(key, _once(self.key.sign(checkpoint).encode()))

    async def dropped(self, organization_id: str) -> tuple[str, ChainCheckpoint] | None:
        """The newest note of what was dropped, as it is stored and as it is read.

        Raises CheckpointForged unless we signed it.
        """
        places = [one async for one in self._objects.list(_prefix(organization_id, dropped=True))]
        if not places:
            return None
        text = await self._text(max(one.key for one in places))
        return text, self.key.verify(text, organization_id=organization_id, dropped=True)

    async def note_dropped(self, checkpoint: ChainCheckpoint) -> None:
        """Signs and stores that the events up to a checkpoint are dropped."""
        key = _key(checkpoint.organization_id, checkpoint.sequence, dropped=True)
        await self._objects.put(key, _once(self.key.sign(checkpoint, dropped=True).encode()))


class CheckpointSigner:
    """Leased rounds: each signs the chains that have grown enough, or for long enough."""

    def __init__(self, database: Database, audit: AuditStore, checkpoints: CheckpointStore):
        self._database = database
        self._audit = audit
        self._checkpoints = checkpoints

    async def once(self) -> bool:
        """Signs what is due; returns True if there may be more."""
        chains = audit_chains.c
        grown = chains.sequence - chains.checkpoint_sequence
        is_due = sa.and_(
            grown > 0,
            sa.or_(grown >= MOST_EVENTS, chains.checkpoint_at <= now_seconds() - MOST_SECONDS),
        )
        token, rows = await claim(
            self._database, audit_chains, is_due, limit=1, seconds=LEASE_SECONDS
        )
        for row in rows:
            fault = await self._sign(row.id, row.sequence, row.hash)
            if fault is not None:
                AUDIT_FAULTS.inc()
                log.error(
                    "audit_chain_broken",
                    organization_id=row.id,
                    sequence=fault.sequence,
                    kind=fault.kind,
                )
                # Left to its lease, so that it is said again and again, but not all the time.
                continue
            async with self._database.begin() as connection:
                await connection.execute(
                    audit_chains.update()
                    .where(audit_chains.c.id == row.id, held(audit_chains, token))
                    .values(
                        checkpoint_sequence=row.sequence,
                        checkpoint_at=now_seconds(),
                        **released(),
                    )
                )
        return bool(rows)

    async def _sign(self, organization_id: str, sequence: int, digest: bytes) -> ChainFault | None:
        """Walks from the newest checkpoint to `sequence`; signs that, or returns the fault."""
        try:
            last = await self._checkpoints.newest(organization_id)
        except CheckpointForged as error:
            return ChainFault(0, "forged_checkpoint", str(error))
        if last is None:
            walk = ChainWalk(organization_id)
        else:
            walk = ChainWalk(organization_id, sequence=last.sequence, hash=last.hash)
        fault = await self._audit.walk(walk, until=sequence)
        if fault is not None:
            return fault
        if (walk.sequence, walk.hash) != (sequence, digest):
            return ChainFault(sequence + 1, "cut_off", "The head is not the chain's end.")
        if last is None or last.sequence < sequence:
            made = ChainCheckpoint(organization_id, sequence, digest, now_ms())
            await self._checkpoints.write(made)
        return None


def _prefix(organization_id: str, *, dropped: bool = False) -> str:
    whose = organization_id or _NOBODY
    return f"audit_dropped/{whose}/" if dropped else f"audit/{whose}/"


def _key(organization_id: str, sequence: int, *, dropped: bool = False) -> str:
    return f"{_prefix(organization_id, dropped=dropped)}{sequence:0{_DIGITS}d}.jws"


async def _once(content: bytes) -> AsyncIterator[bytes]:
    yield content
