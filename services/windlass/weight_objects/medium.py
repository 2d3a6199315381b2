"""The object store as a medium of weight versions; objects of projects with keys are sealed."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager
from pathlib import Path

from windlass.core.killpoints import reach
from windlass.core.objects import ObjectMismatch, ObjectNotFound, ObjectStore
from windlass.weight_versions.manifest import MANIFEST_BYTES, WeightManifest
from windlass.weight_versions.media.folder import (
    ContentCheck,
    named,
    private_folder,
    unknown_version,
)
from windlass.weight_versions.refusals import WeightsRefused
from windlass.weight_versions.writing import DATA, MANIFEST

_BLOCK_BYTES = 4 * 2**20


class ObjectMedium:
    """Versions below a prefix of the store, each with a prefix of its own."""

    def __init__(self, objects: ObjectStore, prefix: str, scratch: Path):
        """`prefix` ends in a slash; what is written and fetched lies in `scratch` meanwhile."""
        self._objects = objects
        self._prefix = prefix
        self._scratch = scratch

    def staged(self) -> AbstractContextManager[Path]:
        """A new folder to write a version into; what is not published goes with it."""
        return private_folder(self._scratch)

    async def publish(self, staged: Path, version: int) -> None:
        """Stores a staged version, its manifest last; raises WeightsRefused `version_exists`."""
        prefix = self._at(version)
        if await self._objects.head(prefix + MANIFEST):
            raise WeightsRefused("version_exists", f"Version {version} is there already.")
        content = await asyncio.to_thread((staged / MANIFEST).read_bytes)
        manifest = WeightManifest.read(content)
        digest = bytes.fromhex(manifest.sha256)
        blocks = _blocks(staged / DATA)
        try:
            await self._objects.put(prefix + DATA, blocks, bytes=manifest.size, sha256=digest)
        except ObjectMismatch as error:
            raise WeightsRefused("damaged_content", f"Version {version}: {error}") from error
        reach("versions.content_stored")
        await self._objects.put(prefix + MANIFEST, _once(content))

    async def manifest(self, version: int) -> WeightManifest:
        """Reads and checks a manifest; raises WeightsRefused, `unknown_version` for none."""
        content = bytearray()
        try:
            async for chunk in self._objects.get(self._at(version) + MANIFEST):
                content += chunk
                if len(content) > MANIFEST_BYTES:
                    break
        except ObjectNotFound as error:
            raise unknown_version(version) from error
        return named(await asyncio.to_thread(WeightManifest.read, bytes(content)), version)

    @asynccontextmanager
    async def fetch(self, version: int) -> AsyncIterator[Path]:
        """A folder of its own with the version's content; raises WeightsRefused."""
        check = ContentCheck(await self.manifest(version))
        with private_folder(self._scratch) as folder:
            try:
                with (folder / DATA).open("wb") as file:
                    async for chunk in self._objects.get(self._at(version) + DATA):
                        check.add(chunk)
                        await asyncio.to_thread(file.write, chunk)
            except ObjectNotFound as error:
                raise unknown_version(version) from error
            check.end()
            yield folder

    async def remove(self, version: int) -> None:
        """Removes a version, its manifest first."""
        await self._objects.delete(self._at(version) + MANIFEST)
        await self._objects.delete_prefix(self._at(version))

    async def close(self) -> None:
        """Leaves the store to others."""

    def _at(self, version: int) -> str:
        return f"{self._prefix}{version:016}/"


async def _once(content: bytes) -> AsyncIterator[bytes]:
    yield content


async def _blocks(path: Path) -> AsyncIterator[bytes]:
    with path.open("rb") as file:
        while block := await asyncio.to_thread(file.read, _BLOCK_BYTES):
            yield block
