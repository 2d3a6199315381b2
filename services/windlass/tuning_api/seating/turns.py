"""Turns on a lease: one active workload, and who comes next; pure."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum

MAX_SHARES = 1024


class TurnPolicy(StrEnum):
    """Rules for who of those that wait comes next."""

    FIFO = "fifo"
    LEAST_RECENT = "least_recent"
    WEIGHTED = "weighted"


class TurnState(StrEnum):
    """States of a resident; all but the parked one have the device to themselves."""

    PARKED = "parked"
    # Granted: it loads its model, or is brought back.
    RESTORING = "restoring"
    ACTIVE = "active"
    PARKING = "parking"


@dataclass(frozen=True, slots=True)
class SeatTurn:
    """A resident in its lease; times are seconds of one clock."""

    seat_id: str
    state: TurnState
    # For whom it waits or computes.
    project_id: str = ""
    # Since when it waits; None: it does not.
    asked_at: float | None = None
    # When its last turn ended; of one that had none, when it came.
    served_at: float = 0.0

    @property
    def waits(self) -> bool:
        """True while it asks for a turn."""
        return self.asked_at is not None and self.state is TurnState.PARKED


@dataclass(frozen=True, slots=True)
class TurnPatience:
    """Times after which an active workload lets others in."""

    # That it computes on while others wait, and that it may rest without being taken for done.
    turn_seconds: float
    rest_seconds: float

    def seconds_left(
        self, now: float, granted_at: float, quiet_since: float | None, weight: float = 1.0
    ) -> float:
        """Seconds until an active workload takes no more work, when somebody waits.

        Of a heavier project they are more: where two take turns, nobody else could come between.
        """
        left = granted_at + self.turn_seconds * weight - now
        if quiet_since is not None:
            left = min(left, quiet_since + self.rest_seconds - now)
        return max(left, 0.0)


def next_turn(
    turns: Collection[SeatTurn], policy: TurnPolicy, shares: Mapping[str, float]
) -> SeatTurn | None:
    """Chooses who is granted the device now: nobody while another has it, or none waits.

    `shares` are served seconds by project, each divided by the project's weight.
    """
    if any(one.state is not TurnState.PARKED for one in turns):
        return None
    waiting = [one for one in turns if one.waits]
    if not waiting:
        return None

    def rank(one: SeatTurn) -> tuple[float, float, str]:
        asked = one.asked_at or 0.0
        if policy is TurnPolicy.LEAST_RECENT:
            return one.served_at, asked, one.seat_id
        if policy is TurnPolicy.WEIGHTED:
            return shares.get(one.project_id, 0.0), asked, one.seat_id
        return asked, 0.0, one.seat_id

    return min(waiting, key=rank)


def charged(
    shares: Mapping[str, float], project_id: str, seconds: float, weight: float
) -> dict[str, float]:
    """Shares after a project's turn; bounded, the least served are forgotten first."""
    found = dict(shares)
    found[project_id] = found.get(project_id, 0.0) + seconds / weight
    if len(found) > MAX_SHARES:
        del found[min(found, key=lambda one: found[one])]
    return found


def joined(
    shares: Mapping[str, float], project_id: str, present: Collection[str]
) -> dict[str, float]:
    """Shares once a project waits: what it did not use while away is no credit.

    `present` are the projects that wait or compute already.
    """
    floor = min((shares.get(one, 0.0) for one in present if one != project_id), default=0.0)
    return {**shares, project_id: max(shares.get(project_id, 0.0), floor)}
