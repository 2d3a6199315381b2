"""Domain of sign-in: providers, invites, who signed in, and the bounds on them; pure."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from windlass.bounds import (
    MAX_PROVIDER_DOMAINS,
    MAX_PROVIDER_GROUPS,
    MAX_PROVIDER_SCOPES,
    PROVIDER_GROUP_LENGTH,
    PROVIDER_TEXT_LENGTH,
)
from windlass.core.errors import InvalidArgument, NotFound, PermissionDenied
from windlass.core.ids import is_identifier

_DOMAIN = re.compile(r"(?=.{1,253}$)([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z][a-z0-9-]{1,62}")
_EMAIL = re.compile(r"[^@\s\x00-\x1f\x7f]{1,64}@[^@\s\x00-\x1f\x7f]{1,253}")
# RFC 6749: printable, without a quotation mark and a backslash.
_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,128}")
_CHALLENGE = re.compile(r"[A-Za-z0-9_-]{43}")
_LOOPBACK = ("127.0.0.1", "[::1]")
STATE_LENGTH = 512


@dataclass(frozen=True, slots=True)
class IdentityProvider:
    """An issuer that people sign in by, of one organization or of the installation."""

    id: str
    # Empty: of the installation.
    organization_id: str
    name: str
    issuer: str
    client_id: str
    scopes: tuple[str, ...]
    domains: tuple[str, ...]
    # Empty: only who was invited comes in.
    default_role: str
    groups_claim: str
    groups: Mapping[str, str]
    enabled: bool
    created_at: int
    updated_at: int
    # Has the userName or the externalId of a person whom the directory provisions.
    person_claim: str = ""


@dataclass(frozen=True, slots=True)
class SignedIn:
    """A person within the organization that they signed in to."""

    organization_id: str
    user_id: str
    provider_id: str
    subject: str
    issuer_session: str
    auth_at: int
    acr: str
    amr: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class IssuerPerson:
    """A human whom an issuer vouches for."""

    provider_id: str
    issuer: str
    subject: str
    # Empty unless the issuer has verified it.
    email: str
    name: str
    groups: tuple[str, ...]
    # By which the organization's directory knows them; empty: the issuer does not say.
    directory_id: str
    # When and how they last showed who they are, and the issuer's name of its session.
    auth_at: int
    acr: str
    amr: tuple[str, ...]
    issuer_session: str

    def within(self, organization_id: str, user_id: str) -> SignedIn:
        """The person as a member of an organization."""
        return SignedIn(
            organization_id,
            user_id,
            self.provider_id,
            self.subject,
            self.issuer_session,
            self.auth_at,
            self.acr,
            self.amr,
        )


@dataclass(frozen=True, slots=True)
class Invite:
    """An invitation to sign in."""

    id: str
    organization_id: str
    # Whose verified address must be this; empty: whoever has the link.
    email: str
    # Of the organization; empty: of projects alone.
    role: str
    projects: Mapping[str, str]
    # A member who is here already.
    user_id: str
    invited_by: str
    created_at: int
    expires_at: int
    accepted_at: int = 0
    accepted_by: str = ""


@dataclass(frozen=True, slots=True)
class InviteMail:
    """State of an invite's mail."""

    sent_at: int = 0
    error: str = ""


def valid_email(text: str) -> str:
    """A mail address in lower case; raises InvalidArgument."""
    if not _EMAIL.fullmatch(text):
        raise InvalidArgument("email must be a mail address.", param="email")
    return text.lower()


def valid_domains(names: Iterable[str]) -> tuple[str, ...]:
    """Domains of mail addresses in lower case, sorted; raises InvalidArgument."""
    found = sorted({name.lower() for name in names})
    if len(found) > MAX_PROVIDER_DOMAINS or not all(map(_DOMAIN.fullmatch, found)):
        raise InvalidArgument(
            f"domains must be at most {MAX_PROVIDER_DOMAINS} names such as example.com.",
            param="domains",
        )
    return tuple(found)


def valid_scopes(names: Iterable[str]) -> tuple[str, ...]:
    """Scopes to ask an issuer for, in their order; raises InvalidArgument."""
    found = tuple(dict.fromkeys(name for name in names if name != "openid"))
    if len(found) > MAX_PROVIDER_SCOPES or not all(map(_SCOPE.fullmatch, found)):
        raise InvalidArgument(
            f"scopes must be at most {MAX_PROVIDER_SCOPES} names without spaces.", param="scopes"
        )
    return found


def valid_groups(groups: Mapping[str, str]) -> dict[str, str]:
    """Values of a groups claim and the groups that they stand for; raises InvalidArgument."""
    if len(groups) > MAX_PROVIDER_GROUPS or any(
        not 0 < len(value) <= PROVIDER_GROUP_LENGTH
        or not value.isprintable()
        or not is_identifier(group_id)
        for value, group_id in groups.items()
    ):
        raise InvalidArgument(
            f"groups must be at most {MAX_PROVIDER_GROUPS} values of the claim, each with the id "
            "of a group.",
            param="groups",
        )
    return dict(groups)


def valid_text(text: str, param: str, *, empty: bool = False) -> str:
    """Printable text of a provider; raises InvalidArgument."""
    if (not text and not empty) or len(text) > PROVIDER_TEXT_LENGTH or not text.isprintable():
        raise InvalidArgument(
            f"{param} must have at most {PROVIDER_TEXT_LENGTH} printable characters.", param=param
        )
    return text


def valid_loopback(uri: str) -> str:
    """The address of a program on the person's machine (RFC 8252, 7.3); raises InvalidArgument.

    No name, which something else could answer for, and no other machine.
    """
    try:
        parts = urlsplit(uri)
        host, port = parts.netloc.rpartition(":")[0], parts.port
    except ValueError:
        host, port = "", None
    plain = len(uri) <= PROVIDER_TEXT_LENGTH and uri.isascii() and uri.isprintable()
    if not (plain and uri.startswith("http://") and host in _LOOPBACK and port):
        raise InvalidArgument(
            "redirect_uri must be http://127.0.0.1 or http://[::1] with a port.",
            param="redirect_uri",
        )
    if parts.fragment or "#" in uri:
        raise InvalidArgument("redirect_uri must have no fragment.", param="redirect_uri")
    return uri


def valid_challenge(text: str) -> str:
    """A PKCE challenge by S256; raises InvalidArgument."""
    if not _CHALLENGE.fullmatch(text):
        raise InvalidArgument(
            "code_challenge must be the base64url of a SHA-256.", param="code_challenge"
        )
    return text


def is_of_domains(email: str, domains: Iterable[str]) -> bool:
    """Returns True if a verified address is in one of some domains, or there are none."""
    names = tuple(domains)
    return not names or email.rpartition("@")[2] in names


def unknown_provider(provider_id: str) -> NotFound:
    """The error of a provider that is not there, or not for the caller."""
    return NotFound(f"No identity provider {provider_id!r}.", param="provider_id")


def unknown_invite(invite_id: str = "") -> NotFound:
    """The error of an invite that is not there, or not for the caller."""
    named = f" {invite_id!r}" if invite_id else ""
    return NotFound(f"No invite{named} that is open.", param="invite_id")


def refused(message: str) -> PermissionDenied:
    """The refusal of a sign-in."""
    return PermissionDenied(message, reason="sign_in_refused")
