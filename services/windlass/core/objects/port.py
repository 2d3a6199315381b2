"""The port of object stores, and its errors."""

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, TypeAlias

from windlass.core.errors import FailedPrecondition, Unavailable

Sha256: TypeAlias = bytes

_SEGMENT = re.compile(r"[A-Za-z0-9._=+@,~-]{1,200}")
_KEY_CHARACTERS = 800


class ObjectStoreError(Exception):
    """The store did not do what was asked; `retryable` says whether later may differ."""

    retryable = False


class InvalidKey(ObjectStoreError):
    """The key or prefix is not one that a store takes."""


class ObjectNotFound(ObjectStoreError):
    """No object has that key."""


class ObjectTooLarge(ObjectStoreError):
    """More bytes came than were allowed."""


class ObjectMismatch(ObjectStoreError):
    """Size or digest are not those that were announced."""


class SignatureInvalid(ObjectStoreError):
    """A signed URL was altered or has expired."""


class StorageFull(ObjectStoreError):
    """A store without room for what is written."""

    retryable = True


class StoreUnavailable(ObjectStoreError):
    """The store does not answer."""

    retryable = True


class SealingKeyUnavailable(StoreUnavailable, Unavailable):
    """The key that seals an object cannot be had; the message names the external key."""


class ObjectDamaged(ObjectStoreError, FailedPrecondition):
    """A sealed object was changed, cut, or moved from another place."""


@dataclass(frozen=True)
class StoredObject:
    """Key, size and digest of a stored object."""

    key: str
    bytes: int
    sha256: Sha256


@dataclass(frozen=True)
class ObjectInfo:
    """Metadata of an object."""

    key: str
    bytes: int
    modified_at: datetime


def validate_key(key: str) -> str:
    """The key itself; raises InvalidKey unless it is a relative path of plain segments."""
    if len(key) > _KEY_CHARACTERS:
        raise InvalidKey(f"A key has at most {_KEY_CHARACTERS} characters.")
    for segment in key.split("/"):
        if segment in {".", ".."} or not _SEGMENT.fullmatch(segment):
            raise InvalidKey(f"{segment!r} in {key!r} is not a valid segment of a key.")
    return key


def validate_prefix(prefix: str) -> str:
    """The prefix itself; raises InvalidKey unless it is a key and a slash: a whole folder."""
    if not prefix.endswith("/"):
        raise InvalidKey(f"The prefix {prefix!r} does not end in a slash.")
    validate_key(prefix[:-1])
    return prefix


class ObjectStore(Protocol):
    """Objects by key. Any method raises StoreUnavailable, or InvalidKey for a bad key."""

    async def put(
        self,
        key: str,
        chunks: AsyncIterator[bytes],
        *,
        max_bytes: int | None = None,
        bytes: int | None = None,  # noqa: A002
        sha256: Sha256 | None = None,
    ) -> StoredObject:
        """Stores a stream in bounded memory; visible once whole and durable, last one wins.

        After any error or a cancellation nothing of it stays, and what had the key before does.
        Raises ObjectTooLarge above `max_bytes`, ObjectMismatch when it is not of the announced
        `bytes` or `sha256`, and StorageFull.
        """
        ...

    def get(self, key: str, *, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        """The bytes from `start` to before `end`, in large chunks; none when past the end.

        Raises ObjectNotFound at the first step.
        """
        ...

    async def head(self, key: str) -> ObjectInfo | None:
        """The size and date of an object; None when there is none."""
        ...

    async def delete(self, key: str) -> None:
        """Removes an object, if it is there."""
        ...

    async def delete_prefix(self, prefix: str) -> int:
        """Removes all below `prefix`, which ends in a slash; how many there were.

        A call that did not end has removed some of it, and the next one removes the rest.
        """
        ...

    async def count(self, prefix: str) -> tuple[int, int]:
        """The number of objects below `prefix`, which ends in a slash, and the bytes they take.

        Of sealed objects that is a little more than what they hold.
        """
        ...

    def list(self, prefix: str = "") -> AsyncIterator[ObjectInfo]:
        """All below `prefix`, which is empty or ends in a slash, in the order of keys."""
        ...

    async def digest(self, key: str) -> Sha256:
        """The SHA-256 of what is stored, by reading it; raises ObjectNotFound."""
        ...

    async def presign_get(
        self, key: str, *, expires: int, filename: str | None = None, holder: str = ""
    ) -> str:
        """A URL that reads the object for `expires` seconds, as an attachment `filename`.

        It ends earlier with `holder`, an API key's id, where the store can tell; S3 cannot.
        """
        ...

    async def presign_put(
        self,
        key: str,
        *,
        expires: int,
        bytes: int | None = None,  # noqa: A002
        sha256: Sha256 | None = None,
        holder: str = "",
    ) -> str:
        """A URL that takes one PUT for `expires` seconds, of that size; `holder` as of a GET.

        S3 cannot bind a digest into a URL: compare `digest` before you trust the content.
        """
        ...

    async def check(self) -> None:
        """Raises ObjectStoreError unless the store can be written."""
        ...

    async def close(self) -> None:
        """Frees threads and connections."""
        ...
