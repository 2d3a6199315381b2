"""Identity of callers: principals, API keys, and the signed tokens between processes.

API keys are 256 random bits, so a keyed SHA-256 is the right hash for them: a
slow one would only slow the gateway. Tokens are JWTs signed with Ed25519 by a
key pair that lives in one process and rotates; public keys are rows.
"""

import hashlib
import hmac
import re
import secrets
import string
import zlib
from contextvars import ContextVar
from dataclasses import dataclass

from windlass.api.auth.v1 import auth_pb2 as pb
from windlass.core.errors import PermissionDenied, Unauthenticated
from windlass.core.rpc.model_scope import ModelScope, unknown_model

# Public: it tells these digests from those of other programs, and hides nothing.
_CONTEXT = b"windlass"
_ALPHABET = string.ascii_letters + string.digits
# 43 characters of 62 carry 256 bits; 6 carry a CRC-32.
_SECRET_LENGTH, _CHECKSUM_LENGTH = 43, 6
_SECRET = re.compile(
    rf"[a-z][a-z0-9]{{0,15}}[-_][0-9A-Za-z]{{{_SECRET_LENGTH}}}"
    rf"(?P<checksum>[0-9A-Za-z]{{{_CHECKSUM_LENGTH}}})?"
)


@dataclass(frozen=True, slots=True)
class Principal:
    """A tenant's caller, as the gateway established it."""

    organization_id: str
    project_id: str = ""
    user_id: str = ""
    key_id: str = ""
    roles: tuple[str, ...] = ()
    permissions: frozenset[str] = frozenset()
    # The models that its key and its project are narrowed to; None: any.
    models: ModelScope | None = None
    # A session that lacks what only owners may, until its person signs in anew.
    is_weakened: bool = False
    # Of a session: until when it takes dangerous steps; 0: nobody knows when its person showed who
    # they are. None: nobody asks, as of keys, which have nobody who could be asked.
    fresh_until: int | None = None

    def may(self, permission: str) -> bool:
        """Returns True if some role of the caller grants the permission."""
        return permission in self.permissions

    def may_use(self, model: str) -> bool:
        """Returns True unless the caller's key or project is narrowed to other models."""
        return self.models is None or self.models.admits(model)

    def require_model(self, model: str, param: str = "model") -> None:
        """Raises the NotFound of an unknown model for one that the caller's key or project is not
        for.
        """
        if not self.may_use(model):
            raise unknown_model(model, param)

    def covers(self, other: "Principal") -> bool:
        """Returns True if the caller may do all that another may."""
        narrowed = self.models is not None and not self.models.covers(other.models)
        return self.permissions >= other.permissions and not narrowed

    def require_project(self) -> str:
        """The project of the call; raises PermissionDenied when it names none."""
        if not self.project_id:
            raise PermissionDenied(
                "This call requires a project: send the header OpenAI-Project or use a key "
                "of a project.",
                reason="project_required",
            )
        return self.project_id

    def to_proto(self) -> pb.Principal:
        """The message of `windlass.api.auth.v1`."""
        return pb.Principal(
            organization_id=self.organization_id,
            project_id=self.project_id,
            user_id=self.user_id,
            key_id=self.key_id,
            roles=self.roles,
            permissions=sorted(self.permissions),
            models=self.models.patterns if self.models is not None else (),
            weakened=self.is_weakened,
            fresh_until=self.fresh_until,
        )

    @classmethod
    def from_proto(cls, message: pb.Principal) -> "Principal":
        """Inverse of `to_proto`."""
        return cls(
            organization_id=message.organization_id,
            project_id=message.project_id,
            user_id=message.user_id,
            key_id=message.key_id,
            roles=tuple(message.roles),
            permissions=frozenset(message.permissions),
            models=ModelScope.of(message.models),
            is_weakened=message.weakened,
            fresh_until=message.fresh_until if message.HasField("fresh_until") else None,
        )


@dataclass(frozen=True, slots=True)
class AgentIdentity:
    """An enrolled agent, by its cluster."""

    cluster_id: str
    name: str
    # Digest of the credential that the call came with, and its end in Unix seconds; 0: never.
    credential: bytes = b""
    expires_at: int = 0


_principal: ContextVar[Principal | None] = ContextVar("principal", default=None)
_agent: ContextVar[AgentIdentity | None] = ContextVar("agent", default=None)
# The signed form of the current principal, for calls made on its behalf.
principal_token: ContextVar[str] = ContextVar("principal_token", default="")
# The address that the caller's request came from, as the gateway saw it; empty: not known.
client_address: ContextVar[str] = ContextVar("client_address", default="")


def current() -> Principal:
    """The tenant's principal of this call; raises Unauthenticated outside one."""
    principal = _principal.get()
    if principal is None:
        raise Unauthenticated("This call requires a user or an API key.")
    return principal


def current_agent() -> AgentIdentity:
    """The agent of this call; raises Unauthenticated outside one."""
    agent = _agent.get()
    if agent is None:
        raise Unauthenticated("This call requires the credential of an agent.")
    return agent


def enter(*, principal: Principal | None = None, agent: AgentIdentity | None = None) -> None:
    """Sets who is calling, for the rest of this task. The boundary alone calls it."""
    _principal.set(principal)
    _agent.set(agent)


def new_secret(prefix: str) -> str:
    """A fresh credential: `<prefix><43 letters and digits><6 of their checksum>`."""
    drawn = prefix + "".join(secrets.choice(_ALPHABET) for _ in range(_SECRET_LENGTH))
    return drawn + checksum(drawn)


def may_be_secret(text: str) -> bool:
    """Returns False for what `new_secret` cannot have made.

    Those that earlier releases made have no checksum.
    """
    found = _SECRET.fullmatch(text)
    if found is None:
        return False
    said = found["checksum"]
    return said is None or said == checksum(text[:-_CHECKSUM_LENGTH])


def checksum(drawn: str) -> str:
    """The CRC-32 of a credential without it, prefix included: 6 digits of base 62, a to 9."""
    rest, digits = zlib.crc32(drawn.encode()), ""
    for _ in range(_CHECKSUM_LENGTH):
        rest, digit = divmod(rest, len(_ALPHABET))
        digits = _ALPHABET[digit] + digits
    return digits


def digest(secret: str) -> bytes:
    """The stored form of a credential: HMAC-SHA256, 32 bytes."""
    return hmac.digest(_CONTEXT, secret.encode(), hashlib.sha256)


def redact(secret: str, prefix: str) -> str:
    """The visible form of a credential: its prefix and last four characters."""
    return f"{prefix}...{secret[-4:]}"
