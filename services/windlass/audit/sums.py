"""Sums of refusals and reads: who is refused, or looks, again and again fills no log."""

from dataclasses import dataclass, field

from windlass.api.rbac.v1 import rbac_pb2 as pb
from windlass.core.ids import new_id
from windlass.core.rpc.rules import is_read

WINDOW_SECONDS = 60.0
# Of a caller and an action so many events in a window; all others are one, with their number.
WHOLE = 10
MOST_CALLERS = 10_000
_REFUSED = frozenset({"PERMISSION_DENIED", "UNAUTHENTICATED"})
# What callers do not choose: names of our own RPCs.
_RPC = "windlass.api."
_Caller = tuple[str, str, str, str, str]


@dataclass
class _Sum:
    """One caller's events of an action in a window; `last` is the latest that was not whole."""

    whole: int = 0
    summed: int = 0
    last: pb.AuditEvent | None = None
    read: set[str] = field(default_factory=set)

    def as_event(self, action: str) -> pb.AuditEvent | None:
        """An event for all that were not whole; None without any."""
        if self.last is None:
            return None
        made = pb.AuditEvent()
        made.CopyFrom(self.last)
        made.id, made.action = new_id("audit_"), action
        made.resource = made.request_id = ""
        made.repeats = self.summed - 1
        return made


class EventSums:
    """Counts refusals and reads by caller and action, in bounded memory."""

    def __init__(self) -> None:
        self._sums: dict[_Caller, _Sum] = {}

    @property
    def is_full(self) -> bool:
        """True if the sums should be taken before their window is over."""
        return len(self._sums) >= MOST_CALLERS

    def admits(self, event: pb.AuditEvent) -> bool:
        """Returns True if an event is to be recorded itself; otherwise it is counted.

        What is read a second time in a window is not.
        """
        refused = event.outcome in _REFUSED
        if not refused and not is_read(event.action):
            return True
        action = event.action if event.action.startswith(_RPC) else _family(event.action)
        kind = "refused" if refused else "read"
        caller = (kind, event.organization_id, event.user_id, event.key_id, action)
        found = self._sums.setdefault(caller, _Sum())
        if found.whole < WHOLE and (refused or event.resource not in found.read):
            found.whole += 1
            found.read.add(event.resource)
            return True
        found.summed += 1
        found.last = event
        return False

    def take(self) -> list[pb.AuditEvent]:
        """Returns an event for each sum, and begins another window."""
        sums, self._sums = self._sums, {}
        made = (one.as_event(action) for (*_, action), one in sums.items())
        return [event for event in made if event is not None]


def _family(action: str) -> str:
    """An action without what its caller named, such as `kubernetes/*`."""
    return f"{action.partition('/')[0]}/*"
