"""Decision of a job's next step from its desired and its actual state. Pure."""

from dataclasses import dataclass
from enum import Enum, auto


class Want(Enum):
    """The desired state of a workload."""

    RUNNING = auto()
    STOPPED = auto()
    DELETED = auto()


class Action(Enum):
    """One step towards the desired state."""

    NOTHING = auto()
    # Begin the wanted attempt; there is none.
    START = auto()
    # Ask the attempt to save and end.
    STOP = auto()
    # End the attempt at once.
    KILL = auto()
    # Drop what is left of an ended attempt.
    FORGET = auto()


@dataclass(frozen=True, slots=True)
class Desired:
    """Desired state: what is wanted, and of which attempt."""

    want: Want
    attempt: int


@dataclass(frozen=True, slots=True)
class Actual:
    """Actual state: an attempt that is waiting or running (alive), or has ended."""

    attempt: int
    alive: bool
    stopping: bool = False
    killing: bool = False


def decide(desired: Desired, actual: Actual | None) -> Action:
    """The next step; NOTHING when there is none, or when one must first take effect.

    An attempt that has ended is never begun again, and a wanted attempt begins
    only when nothing of another one is left.
    """
    if actual is None:
        return Action.START if desired.want is Want.RUNNING else Action.NOTHING
    if desired.want is Want.DELETED or actual.attempt < desired.attempt:
        if not actual.alive:
            return Action.FORGET
        return Action.NOTHING if actual.killing else Action.KILL
    if desired.want is Want.STOPPED and actual.alive and not (actual.stopping or actual.killing):
        return Action.STOP
    return Action.NOTHING
