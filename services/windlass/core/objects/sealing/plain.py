"""One object that is not sealed, of any store, opened."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass

from windlass.core.objects.filesystem import FilesystemStore
from windlass.core.objects.port import ObjectNotFound, ObjectStore
from windlass.core.objects.served import OpenObject


@dataclass(frozen=True, slots=True)
class OpenPlain:
    """An OpenObject of a store that is read by requests."""

    store: ObjectStore
    key: str
    size: int

    async def read(self, start: int, stop: int) -> AsyncGenerator[bytes, None]:
        """See OpenObject.read."""
        async for chunk in self.store.get(self.key, start=start, end=stop):
            yield chunk

    def close(self) -> None:
        """See OpenObject.close."""


async def open_plain(store: ObjectStore, key: str) -> OpenObject:
    """Opens an object as it is stored; raises ObjectNotFound."""
    if isinstance(store, FilesystemStore):
        return await store.open(key)
    info = await store.head(key)
    if info is None:
        raise ObjectNotFound(f"There is no object {key}.")
    return OpenPlain(store, key, info.bytes)
