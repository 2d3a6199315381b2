"""Words of a directory on people, and the bounds on them; pure."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from windlass.bounds import (
    DIRECTORY_TEXT_LENGTH,
    EMAIL_BYTES,
    EMAIL_TYPE_LENGTH,
    MAX_EMAILS,
    TITLE_LENGTH,
)
from windlass.core.errors import (
    AlreadyExists,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    PermissionDenied,
)
from windlass.core.ids import new_id
from windlass.core.rpc.auth import Principal
from windlass.policy import SELF, permissions_of
from windlass.users.domain import valid_user

# RFC 7643 keeps it for references within a bulk request.
_RESERVED = "bulkid"
NAME_PARTS = ("formatted", "family_name", "given_name")


@dataclass(frozen=True, slots=True)
class Email:
    """An address of a person."""

    value: str
    type: str = ""
    # None: not said.
    primary: bool | None = None


@dataclass(frozen=True, slots=True)
class Profile:
    """A directory's words on a person."""

    user_name: str
    external_id: str = ""
    display_name: str = ""
    # By `NAME_PARTS`; those that are empty are left out.
    name: dict[str, str] = field(default_factory=dict)
    emails: tuple[Email, ...] = ()
    # None: what was said was taken back, which leaves them active.
    active: bool | None = True

    @property
    def is_active(self) -> bool:
        """True if their credentials and memberships count."""
        return self.active is not False

    @property
    def email(self) -> str:
        """The primary address, or the first; empty where there is none."""
        primary = [email.value for email in self.emails if email.primary]
        return next(iter([*primary, *(email.value for email in self.emails)]), "")

    @property
    def title(self) -> str:
        """The name by which people call them; empty where none is said."""
        parts = f"{self.name.get('given_name', '')} {self.name.get('family_name', '')}".strip()
        return (self.display_name or self.name.get("formatted", "") or parts)[:TITLE_LENGTH].strip()

    @property
    def attributes(self) -> dict[str, Any]:
        """Attributes without a column of their own, as JSON."""
        emails = [
            {"value": one.value, "type": one.type, "primary": one.primary} for one in self.emails
        ]
        return {
            "display_name": self.display_name,
            "name": self.name,
            "emails": emails,
            "active": self.active,
        }


@dataclass(frozen=True, slots=True)
class Person:
    """A user whom the organization knows, and its directory's words on them."""

    id: str
    profile: Profile
    managed_at: int
    version: int
    created_at: int
    updated_at: int


def valid_profile(profile: Profile) -> Profile:
    """A profile within its bounds; raises InvalidArgument."""
    _require_text(profile.user_name, "user_name")
    if not profile.user_name:
        raise InvalidArgument("user_name is missing.", param="user_name")
    for param in ("external_id", "display_name"):
        _require_text(getattr(profile, param), param)
    for part, text in profile.name.items():
        _require_text(text, f"name.{part}")
    _require_emails(profile.emails)
    return profile


def valid_text(text: str, param: str) -> str:
    """A text of a directory that is not empty; raises InvalidArgument."""
    _require_text(text, param)
    if not text:
        raise InvalidArgument(f"{param} is missing.", param=param)
    return text


def _require_text(text: str, param: str, most: int = DIRECTORY_TEXT_LENGTH) -> None:
    if len(text) > most or not text.isprintable() or text != text.strip():
        raise InvalidArgument(
            f"{param} has at most {most} printable characters, and no space around them.",
            param=param,
        )


def _require_emails(emails: tuple[Email, ...]) -> None:
    if len(emails) > MAX_EMAILS:
        raise InvalidArgument(f"A person has at most {MAX_EMAILS} emails.", param="emails")
    if sum(email.primary is True for email in emails) > 1:
        raise InvalidArgument("One email alone may be primary.", param="emails")
    for email in emails:
        _require_text(email.value, "emails.value", EMAIL_BYTES)
        _require_text(email.type, "emails.type", EMAIL_TYPE_LENGTH)
        if not 0 < len(email.value.encode()) <= EMAIL_BYTES:
            raise InvalidArgument(f"An email has 1 to {EMAIL_BYTES} bytes.", param="emails")


def id_for(user_name: str, *, is_free: bool) -> str:
    """The user id of somebody new: the name where it can be one."""
    if not is_free or user_name.lower() == _RESERVED:
        return new_id("user_")
    try:
        return valid_user(user_name)
    except InvalidArgument:
        return new_id("user_")


def require_version(found: int, wanted: int | None) -> None:
    """Raises FailedPrecondition where something is not of the version that a call is for."""
    if wanted is not None and wanted != found:
        raise FailedPrecondition(
            f"It has changed meanwhile: its version is {found}, not {wanted}. Read it again.",
            reason="version_mismatch",
        )


def require_directory_power(principal: Principal, permissions: Iterable[str]) -> None:
    """Raises PermissionDenied for roles of a group or a person that the key could not give.

    The key is narrowed to the directory, so that the role it was made with is what counts.
    """
    if missing := sorted(set(permissions) - permissions_of(principal.roles) - {SELF}):
        raise PermissionDenied(
            f"Their roles grant {', '.join(missing)}, which the role of this key cannot "
            "give. Use a key of an owner of the organization."
        )


def unknown_person(user_id: str) -> NotFound:
    """The error of a person who is not there, or not for the caller."""
    return NotFound(f"No person {user_id!r}.", param="id")


def taken_name(user_name: str) -> AlreadyExists:
    """The error of a user name that somebody has."""
    return AlreadyExists(
        f"Somebody has the user name {user_name[:100]!r} already. Look them up by it, and replace "
        "what is said of them.",
        param="user_name",
    )
