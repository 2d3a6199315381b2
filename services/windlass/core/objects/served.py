"""The port of stores whose signed URLs our gateway serves."""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from pathlib import Path
from typing import Protocol

from windlass.core.objects.port import ObjectStore, StoredObject
from windlass.core.objects.signing import SignedRequest


class OpenObject(Protocol):
    """One object as it was when it was opened."""

    @property
    def size(self) -> int:
        """The number of its bytes."""
        ...

    def read(self, start: int, stop: int) -> AsyncGenerator[bytes, None]:
        """The bytes from `start` to before `stop`, which are within its size; closes it."""
        ...

    def close(self) -> None:
        """Lets go of what was not read."""
        ...


class ServedStore(ObjectStore, Protocol):
    """A store whose signed URLs our gateway serves."""

    def verify(self, method: str, key: str, query: Mapping[str, str]) -> SignedRequest:
        """The request that one of its URLs permits; raises SignatureInvalid."""
        ...

    async def take(self, request: SignedRequest, chunks: AsyncIterator[bytes]) -> StoredObject:
        """Puts what a URL permits; raises as `put`, and ObjectNotFound where it ended."""
        ...

    async def give(self, request: SignedRequest) -> OpenObject:
        """Opens what a URL permits to read; raises as `open`."""
        ...

    async def open(self, key: str) -> OpenObject:
        """The object, to be read in part or whole; raises ObjectNotFound."""
        ...

    def file(self, url: str) -> Path | None:
        """The file on this machine that a signed URL reads; None where there is none, or not so."""
        ...
