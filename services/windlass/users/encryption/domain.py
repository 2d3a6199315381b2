"""Keys that tenants keep elsewhere: how each kind is named, and the bounds on that; pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from windlass.bounds import EXTERNAL_KEY_LENGTH
from windlass.core.errors import FailedPrecondition, InvalidArgument, NotFound, Unavailable

# Which parameters name a key of each kind, and the form of each.
_PARTS: Mapping[str, Mapping[str, re.Pattern[str]]] = {
    "aws": {
        "kms_arn": re.compile(r"arn:aws[a-z-]*:kms:[a-z0-9-]+:\d{12}:key/[\w-]+", re.ASCII),
        "role_arn": re.compile(r"arn:aws[a-z-]*:iam::\d{12}:role/[\w+=,.@/-]+", re.ASCII),
        "external_id": re.compile(r"(org-|proj_)[A-Za-z0-9_-]+", re.ASCII),
    },
    "vault": {
        "address": re.compile(r"https?://[^/?#]+/?"),
        "mount": re.compile(r"(?!.*\.\.)[\w.-]+(/[\w.-]+)*", re.ASCII),
        "key": re.compile(r"(?!\.+$)[\w.-]+", re.ASCII),
        "namespace": re.compile(r"|[\w./-]+", re.ASCII),
    },
    "pkcs11": {
        "token_name": re.compile(r"[a-z0-9-]{1,32}"),
        "key_label": re.compile(r"(?!.*:)[!-~]([ -~]*[!-~])?"),
    },
}


@dataclass(frozen=True, slots=True)
class OwnKey:
    """A key of an organization's own; its keeper is AWS KMS, a Vault or a PKCS#11 token."""

    id: str
    organization_id: str
    name: str
    kind: str
    place: Mapping[str, str]
    # Sealed.
    credential: bytes
    created_at: int
    project_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DataKey:
    """A key, wrapped, by which a project's secrets and object keys are sealed."""

    id: str
    organization_id: str
    project_id: str
    external_key_id: str
    wrapped: str
    mark: bytes
    # The key that seals the project's objects, which this one seals.
    object_key_id: str = ""

    @property
    def context(self) -> str:
        """Context that its wrapping is bound to."""
        return f"{self.organization_id}/{self.project_id}/{self.id}"


@dataclass(frozen=True, slots=True)
class NewDataKey:
    """A data key that is not stored yet, and the key for objects that came with it, sealed."""

    key: DataKey
    object_key: bytes


def valid_place(kind: str, place: Mapping[str, str]) -> Mapping[str, str]:
    """Returns the place of a key; raises InvalidArgument, which names the part."""
    for name, pattern in _PARTS[kind].items():
        value = place[name]
        if len(value) > EXTERNAL_KEY_LENGTH or not pattern.fullmatch(value):
            raise InvalidArgument(f"{name} is missing or has another form.", param=name)
    return {name: place[name] for name in _PARTS[kind]}


def valid_token(token: str) -> str:
    """A token of Vault; raises InvalidArgument."""
    if len(token) > EXTERNAL_KEY_LENGTH or not re.fullmatch(r"[!-~]+", token):
        raise InvalidArgument("token is missing or has another form.", param="token")
    return token


def unknown_key(external_key_id: str) -> NotFound:
    """The error of an external key that is not there, or not for the caller."""
    return NotFound(f"No external key {external_key_id!r}.", param="external_key_id")


def unavailable(external_key_id: str, why: object) -> Unavailable:
    """The error of what an external key would have to open."""
    return Unavailable(
        f"The external key {external_key_id} cannot be used: {why}.",
        reason="external_key_unavailable",
    )


def unusable(external_key_id: str, why: object) -> FailedPrecondition:
    """The error of a key that was to be used for the first time, or tried."""
    return FailedPrecondition(
        f"The external key {external_key_id} cannot be used: {why}.",
        reason="external_key_unavailable",
        param="external_key_id",
    )


def object_key_context(project_id: str, object_key_id: str) -> str:
    """Context that the envelope of a key for objects is bound to; no secret has such a one."""
    return f"{project_id}/objects/{object_key_id}"
