"""Requests for a role for a time, and who may decide on them; pure."""

from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from windlass.bounds import MIN_ELEVATION_SECONDS, REASON_LENGTH
from windlass.core.errors import FailedPrecondition, InvalidArgument, NotFound, PermissionDenied
from windlass.policy import MEMBERS, SELF
from windlass.users.roles.domain import CustomRole

PENDING, APPROVED, DENIED = "pending", "approved", "denied"
WITHDRAWN, ENDED = "withdrawn", "ended"
# A pending one that nobody decided on in time.
EXPIRED = "expired"
# After which a request lapses.
REQUEST_SECONDS = 7 * 86400


@dataclass(frozen=True, slots=True)
class Elevation:
    """A role that a member asked for, and what came of it."""

    id: str
    organization_id: str
    # Empty: in all of the organization.
    project_id: str
    role_id: str
    user_id: str
    reason: str
    seconds: int
    # As stored: see `state_at`.
    state: str
    # That it needs, and by whom it has them.
    approvals: int
    created_at: int
    expires_at: int
    approved_by: tuple[str, ...] = ()
    # Everybody who has seen a secret of a key that approved.
    approval_rests_on: tuple[str, ...] = ()
    denied_by: str = ""
    comment: str = ""
    ends_at: int = 0
    closed_at: int = 0

    def state_at(self, now: int) -> str:
        """The state at a moment: a request lapses, and a role ends, by the clock alone."""
        if self.state == PENDING and self.expires_at <= now:
            return EXPIRED
        return ENDED if self.state == APPROVED and self.ends_at <= now else self.state


@dataclass(frozen=True, slots=True)
class Decider:
    """A member who decides on a request, as the database has them at that moment."""

    user_id: str
    # Of the role of their membership, as far as their key has them: what they can hand on.
    power: frozenset[str]
    permissions: frozenset[str]
    # Everybody who has seen a secret that it takes to have their key.
    key_rests_on: frozenset[str]

    def require_decision(self, elevation: Elevation, role: CustomRole) -> None:
        """Raises PermissionDenied unless they may decide on the request of another."""
        if self.user_id == elevation.user_id:
            raise PermissionDenied("Another member decides on what you ask for.")
        if elevation.user_id in self.key_rests_on:
            raise PermissionDenied(
                f"Your key rests on {elevation.user_id}, who asks. Decide with one that does not."
            )
        self.require_power(role)

    def require_power(self, role: CustomRole) -> None:
        """Raises PermissionDenied unless they may give the role now."""
        if not may_give(role, self.power, self.permissions):
            raise PermissionDenied("You cannot give this role: your own role or key lacks of it.")

    def require_independence(self, elevation: Elevation) -> None:
        """Raises PermissionDenied where two approvals could be one person's."""
        if self.user_id in elevation.approval_rests_on or self.key_rests_on.intersection(
            elevation.approved_by
        ):
            raise PermissionDenied(
                "Your key and the one that approved already rest on each other's owners. Another "
                "member approves, or you with a key that you alone know."
            )


def may_give(role: CustomRole, power: AbstractSet[str], permissions: AbstractSet[str]) -> bool:
    """Returns True if a member with such power and permissions may give a role."""
    return MEMBERS in permissions and set(role.permissions) - {SELF} <= power


def valid_seconds(seconds: int, role: CustomRole) -> int:
    """Seconds for which a role is asked for; raises InvalidArgument."""
    if not MIN_ELEVATION_SECONDS <= seconds <= role.elevation_seconds:
        raise InvalidArgument(
            f"seconds must be between {MIN_ELEVATION_SECONDS} and {role.elevation_seconds}, the "
            "longest of this role.",
            param="seconds",
        )
    return seconds


def valid_reason(text: str, param: str = "reason", *, required: bool = True) -> str:
    """A reason in words; raises InvalidArgument."""
    text = text.strip()
    if (required and not text) or len(text) > REASON_LENGTH:
        least = 1 if required else 0
        raise InvalidArgument(
            f"{param} must have {least} to {REASON_LENGTH} characters.", param=param
        )
    if not text.replace("\n", "").isprintable():
        raise InvalidArgument(f"{param} must be printable.", param=param)
    return text


def closed(elevation: Elevation, now: int) -> FailedPrecondition:
    """The refusal to change what is over."""
    return FailedPrecondition(
        f"This request is {elevation.state_at(now)} already.", reason="elevation_closed"
    )


def unknown_elevation(elevation_id: str) -> NotFound:
    """The error of a request that is not there, or not for the caller."""
    return NotFound(f"No elevation {elevation_id!r}.", param="elevation_id")
