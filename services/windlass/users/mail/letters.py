"""Texts of mail; pure.

What a tenant chose, such as a title, is cut, holds no address and is in no subject, so that nobody
makes Windlass send theirs.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime

_MOST = 80
_SIGNS = re.compile(r"[^\w \-'&(),]+")
# A plain address (RFC 5321's Mailbox of a Dot-string), in which nothing is taken for text.
_ADDRESS = re.compile(
    r"[\w.!#$%&'*+=?^`{|}~-]{1,64}@[A-Za-z0-9-]{1,63}(\.[A-Za-z0-9-]{1,63})*", re.A
)
_ADDRESS_LENGTH = 254


@dataclass(frozen=True, slots=True)
class Letter:
    """A mail before it is somebody's."""

    subject: str
    text: str


def invitation(organization: str, inviter: str, link: str, expires_at: int) -> Letter:
    """Letter of an invite with its link."""
    text = (
        f"{harmless(inviter)} invites you to {harmless(organization)} on Windlass. "
        "To join, open\n\n"
        f"{link}\n\n"
        f"and sign in. The link is good once, until {_moment(expires_at)}.\n\n"
        "If you do not expect this, do nothing: nobody joins without the link and a sign-in.\n"
    )
    return Letter("You are invited to Windlass", text)


def key_expires(organization: str, name: str, key_id: str, expires_at: int) -> Letter:
    """Letter of a key whose time is up soon."""
    text = (
        f"Your key {harmless(name)} ({key_id}) of {harmless(organization)} expires at "
        f"{_moment(expires_at)}.\nMake another in time, and put it where this one is used.\n"
    )
    return Letter("A Windlass key of yours expires soon", text)


def key_unused(organization: str, name: str, key_id: str, ends_at: int) -> Letter:
    """Letter of a key that ends because nobody uses it."""
    text = (
        f"Your key {harmless(name)} ({key_id}) of {harmless(organization)} was not used for long. "
        f"By a policy of the organization it ends at about {_moment(ends_at)},\n"
        "unless it is used before.\n"
    )
    return Letter("A Windlass key of yours is about to end", text)


def harmless(text: str) -> str:
    """A title of a tenant's in a mail of ours: one line without addresses, cut."""
    plain = " ".join(_SIGNS.sub(" ", text).split())
    return plain[:_MOST].strip() or "an organization"


def is_mailable(address: str) -> bool:
    """Returns True for an address that mail is sent to."""
    return len(address) <= _ADDRESS_LENGTH and bool(_ADDRESS.fullmatch(address))


def _moment(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")
