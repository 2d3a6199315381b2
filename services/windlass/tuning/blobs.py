"""Bodies and results that are too large for their rows, as objects."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

from windlass.core.objects import ObjectNotFound, ObjectStore
from windlass.tuning.domain import ROW_BYTES


class Blobs:
    """Bytes in a row or under a key, as large as they are."""

    def __init__(self, objects: ObjectStore):
        self._objects = objects

    async def put(
        self, content: bytes, project_id: str, operation_id: str, kind: str
    ) -> tuple[bytes | None, str]:
        """Returns the bytes for a row, or stores them and returns the key of their object."""
        if len(content) <= ROW_BYTES:
            return content, ""
        key = f"tuning/{project_id}/operations/{operation_id}/{kind}"
        await self._objects.put(key, _once(content))
        return None, key

    async def get(self, content: bytes | None, key: str) -> bytes:
        """The bytes; raises ObjectNotFound."""
        if not key:
            return bytes(content or b"")
        return b"".join([chunk async for chunk in self._objects.get(key)])

    async def delete(self, *keys: str) -> None:
        """Removes objects; an empty key is none."""
        for key in filter(None, keys):
            await self._objects.delete(key)

    async def upload(self, folder: Path, prefix: str) -> tuple[int, dict[str, str]]:
        """Stores the files of a folder; returns how many bytes they have, and their SHA-256."""
        size, files = 0, {}
        for path in sorted(await asyncio.to_thread(_files, folder)):
            stored = await self._objects.put(prefix + path.name, _read(path))
            size += stored.bytes
            files[path.name] = stored.sha256.hex()
        return size, files

    async def download(self, prefix: str, folder: Path) -> None:
        """Writes what lies below a prefix into a folder; raises ObjectNotFound if nothing does."""
        is_empty = True
        async for info in self._objects.list(prefix):
            is_empty = False
            with (folder / info.key.removeprefix(prefix)).open("wb") as file:
                async for chunk in self._objects.get(info.key):
                    await asyncio.to_thread(file.write, chunk)
        if is_empty:
            raise ObjectNotFound(prefix)


_CHUNK_BYTES = 4 * 2**20


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.is_file()]


async def _once(content: bytes) -> AsyncIterator[bytes]:
    yield content


async def _read(path: Path) -> AsyncIterator[bytes]:
    with path.open("rb") as file:
        while chunk := await asyncio.to_thread(file.read, _CHUNK_BYTES):
            yield chunk
