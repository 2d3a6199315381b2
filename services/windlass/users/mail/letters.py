"""Texts of mail; pure.

What a tenant chose, such as a title, is cut and holds no address, so that nobody makes Windlass
send theirs.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime

_MOST = 80
_SIGNS = re.compile(r"[^\w \-'&().,]+")


@dataclass(frozen=True, slots=True)
class Letter:
    """A mail before it is somebody's."""

    subject: str
    text: str


def invitation(organization: str, inviter: str, link: str, expires_at: int) -> Letter:
    """Letter of an invite with its link."""
    title = harmless(organization)
    text = (
        f"{harmless(inviter)} invites you to {title} on Windlass. To join, open\n\n"
        f"{link}\n\n"
        f"and sign in. The link is good once, until {_moment(expires_at)}.\n\n"
        "If you do not expect this, do nothing: nobody joins without the link and a sign-in.\n"
    )
    return Letter(f"Join {title} on Windlass", text)


def key_expires(organization: str, name: str, key_id: str, expires_at: int) -> Letter:
    """Letter of a key whose time is up soon."""
    title = harmless(name)
    text = (
        f"Your key {title} ({key_id}) of {harmless(organization)} expires at "
        f"{_moment(expires_at)}.\nMake another in time, and put it where this one is used.\n"
    )
    return Letter(f"Your Windlass key {title} expires soon", text)


def key_unused(organization: str, name: str, key_id: str, ends_at: int) -> Letter:
    """Letter of a key that ends because nobody uses it."""
    title = harmless(name)
    text = (
        f"Your key {title} ({key_id}) of {harmless(organization)} was not used for long. By a "
        f"policy of the organization it ends at about {_moment(ends_at)},\n"
        "unless it is used before.\n"
    )
    return Letter(f"Your Windlass key {title} is about to end", text)


def harmless(text: str) -> str:
    """A title of a tenant's in a mail of ours: one line without addresses, cut."""
    plain = " ".join(_SIGNS.sub(" ", text).replace(".", " ").split())
    return plain[:_MOST].strip() or "an organization"


def _moment(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")
