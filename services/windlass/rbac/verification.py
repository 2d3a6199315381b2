"""Verification of an organization's chain, in parts of bounded work, against its checkpoints."""

from dataclasses import dataclass, replace

from windlass.audit_chain.links import GENESIS
from windlass.audit_chain.walk import ChainCheckpoint, ChainFault, ChainWalk, CheckpointForged
from windlass.core.errors import InvalidArgument
from windlass.rbac.checkpoints import CheckpointStore
from windlass.rbac.store import AuditStore


@dataclass(frozen=True, slots=True)
class ChainVerdict:
    """The event up to which a chain was found right, and what comes then."""

    sequence: int
    hash: bytes
    # Of the newest checkpoint; 0 without one.
    checkpoint_sequence: int
    fault: ChainFault | None
    has_more: bool
    # Events up to this one were dropped, by a signed note; 0: none.
    dropped_sequence: int = 0


class AuditVerifier:
    """Walks chains of events as they are stored."""

    def __init__(self, audit: AuditStore, checkpoints: CheckpointStore):
        self._audit = audit
        self._checkpoints = checkpoints

    async def verify(self, organization_id: str, *, after: int, events: int) -> ChainVerdict:
        """Checks up to so many events after the sequence `after`, which is 0 or of an event.

        The last part compares the end as well. Raises InvalidArgument.
        """
        head = await self._audit.head(organization_id) or (0, GENESIS)
        walk = ChainWalk(organization_id, sequence=after)
        try:
            newest = await self._checkpoints.newest(organization_id)
            found = await self._checkpoints.dropped(organization_id)
        except CheckpointForged as error:
            said = f"A checkpoint is {error}."
            return _verdict(walk, None, ChainFault(after + 1, "forged_checkpoint", said))
        dropped = found[1] if found else ChainCheckpoint(organization_id, 0, GENESIS, 0)
        walk = await self._begun(dropped, after)
        if newest is not None and newest.sequence > dropped.sequence:
            walk.checkpoints = {newest.sequence: newest.hash}
        until = walk.sequence + events
        fault = await self._audit.walk(walk, until=until)
        if fault is not None and fault.kind == "rewritten" and newest is not None:
            fault = await self._located(newest, fault, dropped.sequence)
        more = fault is None and walk.sequence == until
        if fault is None and not more:
            fault = walk.end() or await self._end(walk, head)
        return replace(_verdict(walk, newest, fault, more), dropped_sequence=dropped.sequence)

    async def _begun(self, dropped: ChainCheckpoint, after: int) -> ChainWalk:
        """A walk from after an event, or after what was dropped; raises InvalidArgument."""
        if after <= dropped.sequence and after in (0, dropped.sequence):
            return ChainWalk(dropped.organization_id, sequence=dropped.sequence, hash=dropped.hash)
        start = await self._audit.hash_of(dropped.organization_id, after)
        if start is None or after < dropped.sequence:
            raise InvalidArgument("after must be the sequence of an event.", param="after")
        return ChainWalk(dropped.organization_id, sequence=after, hash=start)

    async def _end(self, walk: ChainWalk, before: tuple[int, bytes]) -> ChainFault | None:
        """Compares the last event with the head of before the walk, and of now."""
        if walk.sequence < before[0]:
            said = f"The end is missing: the log had {before[0]} events."
            return ChainFault(walk.sequence + 1, "cut_off", said)
        now = await self._audit.head(walk.organization_id) or (0, GENESIS)
        if walk.sequence > now[0]:
            said = f"The log has {now[0]} events by its head."
            return ChainFault(now[0] + 1, "slipped_in", said)
        if walk.sequence == now[0] and walk.hash != now[1]:
            return ChainFault(now[0], "changed", "The event is not the one at the log's head.")
        return None

    async def _located(
        self, newest: ChainCheckpoint, fault: ChainFault, dropped: int
    ) -> ChainFault:
        """The same fault after the last checkpoint that is still true; each vouches for all before.

        So half of them need not be looked at, again and again.
        """
        organization = newest.organization_id
        sequences = [
            one for one in await self._checkpoints.sequences(organization) if one > dropped
        ]
        low, high = 0, len(sequences) - 1
        while low < high:
            middle = (low + high) // 2
            if await self._is_true(organization, sequences[middle]):
                low = middle + 1
            else:
                high = middle
        first = sequences[low - 1] + 1 if low else dropped + 1
        said = f"Of the events {first} to {sequences[high]} some were changed with all hashes."
        return ChainFault(first, fault.kind, said)

    async def _is_true(self, organization_id: str, sequence: int) -> bool:
        checkpoint = await self._checkpoints.read(organization_id, sequence)
        return checkpoint.hash == await self._audit.hash_of(organization_id, sequence)


def _verdict(
    walk: ChainWalk, newest: ChainCheckpoint | None, fault: ChainFault | None, more: bool = False
) -> ChainVerdict:
    return ChainVerdict(walk.sequence, walk.hash, newest.sequence if newest else 0, fault, more)
