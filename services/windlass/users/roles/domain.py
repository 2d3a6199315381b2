"""Roles made by tenants, and the bounds on them; pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from windlass.bounds import (
    MAX_APPROVALS,
    MAX_ELEVATION_SECONDS,
    MAX_KEY_SECONDS,
    MAX_ROLE_PERMISSIONS,
    MIN_ELEVATION_SECONDS,
)
from windlass.core.errors import InvalidArgument, NotFound, PermissionDenied
from windlass.core.rpc.auth import Principal
from windlass.policy import ORGANIZATION_OWNER, PROJECT_OWNER, SELF, permissions_of


@dataclass(frozen=True, slots=True)
class CustomRole:
    """Permissions under a name of the tenant's own."""

    id: str
    organization_id: str
    # Empty: of the organization, and to be given in any of its projects too.
    project_id: str
    name: str
    description: str
    permissions: tuple[str, ...]
    created_at: int
    updated_at: int
    # Who may ask for it for a time: members of the `project` or the `organization`; empty: nobody.
    elevation_askers: str = ""
    elevation_seconds: int = 0
    elevation_approvals: int = 0


@dataclass(frozen=True, slots=True)
class RoleAssignment:
    """A member's or a group's having of a role, in a project or in all of the organization."""

    organization_id: str
    project_id: str
    role_id: str
    # One of the two; the other is empty.
    user_id: str
    group_id: str
    # Unix seconds; 0: without an end.
    ends_at: int
    created_at: int
    assigned_by: str


def valid_permissions(names: Iterable[str], project_id: str) -> tuple[str, ...]:
    """Permissions that a role of an organization or a project may grant; raises InvalidArgument."""
    found = sorted(set(names))
    if not 1 <= len(found) <= MAX_ROLE_PERMISSIONS:
        message = f"permissions must have 1 to {MAX_ROLE_PERMISSIONS} entries."
        raise InvalidArgument(message, param="permissions")
    most = permissions_of((PROJECT_OWNER if project_id else ORGANIZATION_OWNER,))
    if beyond := [name for name in found if name not in most]:
        where = "a project" if project_id else "an organization"
        raise InvalidArgument(
            f"{beyond[0][:100]!r} is not a permission that {where} can give. See "
            "docs/reference/permissions.md.",
            param="permissions",
        )
    return tuple(found)


def require_power(principal: Principal, permissions: Iterable[str]) -> None:
    """Raises PermissionDenied for a role that grants what the caller cannot hand on.

    That is what the role of its membership grants and its key has. What a role of this kind gives
    is nobody's to hand on: it may end, and what was given with it would not.
    """
    own = principal.permissions & permissions_of(principal.roles)
    if missing := sorted(set(permissions) - own - {SELF}):
        raise PermissionDenied(
            f"The role grants {', '.join(missing)}, which you cannot give or take: your own role "
            "or your key does not have it."
        )


def valid_lifetime(seconds: int) -> int:
    """Seconds for which a role is given, 0 without an end; raises InvalidArgument."""
    if not 0 <= seconds <= MAX_KEY_SECONDS:
        raise InvalidArgument(
            f"expires_in must be between 1 and {MAX_KEY_SECONDS} seconds, or 0 for no end.",
            param="expires_in",
        )
    return seconds


def valid_rules(askers: str, seconds: int, approvals: int) -> tuple[str, int, int]:
    """Rules of asking for a role, all empty for none; raises InvalidArgument."""
    if not askers:
        if seconds or approvals:
            raise InvalidArgument("Say who may ask, or nothing.", param="askers")
        return "", 0, 0
    if not MIN_ELEVATION_SECONDS <= seconds <= MAX_ELEVATION_SECONDS:
        raise InvalidArgument(
            f"longest_seconds must be between {MIN_ELEVATION_SECONDS} and {MAX_ELEVATION_SECONDS}.",
            param="longest_seconds",
        )
    if not 1 <= approvals <= MAX_APPROVALS:
        raise InvalidArgument(
            f"approvals must be between 1 and {MAX_APPROVALS}.", param="approvals"
        )
    return askers, seconds, approvals


def unknown_role(role_id: str) -> NotFound:
    """The error of a role that is not there, or not for the caller."""
    return NotFound(f"No role {role_id!r}.", param="role_id")
