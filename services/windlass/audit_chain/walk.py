"""The walk along a chain from its beginning: it stops at the first event that is not right."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from windlass.audit_chain.links import GENESIS, details_digest, link


@dataclass(frozen=True, slots=True)
class ChainFault:
    """The first sequence that is not right, and how: a stable word and a sentence."""

    sequence: int
    kind: str
    message: str


class CheckpointForged(ValueError):
    """No checkpoint of this installation's key, or one of another organization."""


@dataclass(frozen=True, slots=True)
class ChainCheckpoint:
    """The hash that a chain had at a sequence, and the time of signing in Unix milliseconds."""

    organization_id: str
    sequence: int
    hash: bytes
    at_ms: int


class ChainWalk:
    """Follows one organization's events in order, and compares them with known checkpoints."""

    def __init__(
        self,
        organization_id: str,
        *,
        sequence: int = 0,
        hash: bytes = GENESIS,  # noqa: A002
        checkpoints: Mapping[int, bytes] | None = None,
    ):
        """Begins after `sequence`, whose hash that is; `checkpoints` are hashes by sequence."""
        self.organization_id = organization_id
        self.checkpoints = checkpoints or {}
        # The last event that a checkpoint confirms.
        self._confirmed = sequence
        self.sequence = sequence
        self.hash = hash

    def follow(self, events: Iterable[tuple[Mapping[str, object], bytes]]) -> ChainFault | None:
        """Goes over events, each with its stored hash; returns the first fault."""
        for event, stored in events:
            if (fault := self._step(event, stored)) is not None:
                return fault
        return None

    def end(self) -> ChainFault | None:
        """Returns a fault where a checkpoint lies beyond the last event: the end was cut off."""
        beyond = [sequence for sequence in self.checkpoints if sequence > self.sequence]
        if not beyond:
            return None
        missing = f"events up to {max(beyond)} were there, by a signed checkpoint"
        return ChainFault(self.sequence + 1, "cut_off", f"The end is missing: {missing}.")

    def _step(self, event: Mapping[str, object], stored: bytes) -> ChainFault | None:
        expected, found = self.sequence + 1, event.get("sequence")
        if not isinstance(found, int) or found < expected:
            said = f"An event with the sequence {found} is where {expected} should be."
            return ChainFault(expected, "slipped_in", said)
        if found > expected:
            said = f"The events {expected} to {found - 1} are missing."
            return ChainFault(expected, "removed", said)
        if event.get("organization_id", "") != self.organization_id:
            return ChainFault(expected, "foreign", "The event is another organization's.")
        computed = link(self.hash, event)
        if computed != stored:
            said = "The event, or its hash, is not what was recorded."
            return ChainFault(expected, "changed", said)
        # Erased ones have none.
        digest = details_digest(event)
        if digest and digest != event.get("details_digest", ""):
            said = "The event's details are not what was recorded."
            return ChainFault(expected, "changed", said)
        known = self.checkpoints.get(expected)
        if known is not None and known != computed:
            first = self._confirmed + 1
            said = f"Of the events {first} to {expected} some were changed with all hashes."
            return ChainFault(first, "rewritten", said)
        if known is not None:
            self._confirmed = expected
        self.sequence, self.hash = expected, computed
        return None
