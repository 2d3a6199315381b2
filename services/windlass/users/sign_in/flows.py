"""A sign-in on its way between a browser and an issuer, sealed, so that it needs no row.

The browser keeps it in a cookie: whoever brings an answer has begun the sign-in itself.
"""

import hmac
import secrets
from dataclasses import asdict, dataclass, field
from typing import Any
from urllib.parse import urlencode

import orjson

from windlass.core.clock import now_seconds
from windlass.core.errors import InvalidArgument
from windlass.core.keyring import Envelope

FLOW_SECONDS = 600
_CONTEXT = "sign-in"
_LOST = (
    "This sign-in was begun in another browser, is over, or took more than ten minutes. Begin anew."
)


@dataclass(frozen=True, slots=True)
class Client:
    """The client that asked for a sign-in: a browser unless one of these is given."""

    # Of a program on the person's machine.
    redirect_uri: str = ""
    state: str = ""
    code_challenge: str = ""
    # Of a device.
    user_code: str = ""

    def leads_to(self, **answer: str) -> str:
        """The address at which a program's sign-in ends, with its answer (RFC 6749, 4.1.2)."""
        mark = "&" if "?" in self.redirect_uri else "?"
        return self.redirect_uri + mark + urlencode({**answer, "state": self.state})


@dataclass(frozen=True, slots=True)
class AtIssuer:
    """A person is at their issuer."""

    provider_id: str
    callback: str
    invite: str
    client: Client
    state: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    nonce: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    verifier: str = field(default_factory=lambda: secrets.token_urlsafe(48))
    # The person shows again who they are, and not before this.
    fresh: bool = False
    begun_at: int = field(default_factory=now_seconds)


class FlowSeal:
    """Seals sign-ins for browsers, and opens what comes back."""

    def __init__(self, envelope: Envelope):
        self._envelope = envelope

    def seal(self, flow: AtIssuer) -> bytes:
        """The sign-in as a browser keeps it."""
        said = {"until": now_seconds() + FLOW_SECONDS, **asdict(flow)}
        return self._envelope.seal(orjson.dumps(said), context=_CONTEXT)

    def open(self, sealed: bytes) -> AtIssuer:
        """The sign-in that a browser kept; raises InvalidArgument."""
        try:
            said: dict[str, Any] = orjson.loads(self._envelope.open(sealed, context=_CONTEXT))
        except (ValueError, IndexError) as error:
            raise lost() from error
        if said.pop("until") <= now_seconds():
            raise lost()
        return AtIssuer(**{**said, "client": Client(**said["client"])})


def require_same(said: str, ours: str) -> None:
    """Raises InvalidArgument for a state that is not the one that we gave."""
    if not hmac.compare_digest(said.encode(), ours.encode()):
        raise lost()


def lost() -> InvalidArgument:
    """The refusal of an answer that belongs to no sign-in of this browser."""
    return InvalidArgument(_LOST, reason="lost_sign_in", param="state")
