"""A folder as a medium, say of a volume that several machines have."""

import asyncio
import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import BinaryIO

from windlass.weight_versions.manifest import MANIFEST_BYTES, WeightManifest
from windlass.weight_versions.refusals import WeightsRefused
from windlass.weight_versions.writing import DATA, MANIFEST

_BLOCK_BYTES = 2**20


class FolderMedium:
    """Versions below a folder, each in one of its own."""

    def __init__(self, root: Path, scratch: Path | None):
        """Copies what is fetched to `scratch`; None: others never write to `root`."""
        self._root = root
        self._scratch = scratch

    @contextmanager
    def staged(self) -> Iterator[Path]:
        """A new folder to write a version into; what is not published goes with it."""
        folder = Path(tempfile.mkdtemp(prefix=".staged-", dir=self._root))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    async def publish(self, staged: Path, version: int) -> None:
        """Makes a staged version readable; raises WeightsRefused `version_exists`."""
        try:
            # A folder with files is never replaced by a rename.
            await asyncio.to_thread(os.rename, staged, self._folder(version))
        except OSError as error:
            if not self._folder(version).exists():
                raise
            raise WeightsRefused(
                "version_exists", f"Version {version} is there already."
            ) from error

    async def manifest(self, version: int) -> WeightManifest:
        """Reads and checks a manifest; raises WeightsRefused, `unknown_version` for none."""
        content = await asyncio.to_thread(self._read_manifest, version)
        return named(await asyncio.to_thread(WeightManifest.read, content), version)

    @asynccontextmanager
    async def fetch(self, version: int) -> AsyncIterator[Path]:
        """A folder with the version's content that nobody changes; raises WeightsRefused."""
        if self._scratch is None:
            yield self._folder(version)
            return
        manifest = await self.manifest(version)
        with private_folder(self._scratch) as folder:
            source = self._folder(version) / DATA
            await asyncio.to_thread(_copy, source, folder / DATA, manifest)
            yield folder

    async def remove(self, version: int) -> None:
        """Removes a version, if it is there."""
        # Away first, so that nobody finds half of it.
        with self.staged() as folder:
            try:
                await asyncio.to_thread(os.rename, self._folder(version), folder / "removed")
            except FileNotFoundError:
                return

    async def close(self) -> None:
        """Leaves the folder to its readers."""

    def _folder(self, version: int) -> Path:
        return self._root / f"{version:016}"

    def _read_manifest(self, version: int) -> bytes:
        try:
            with opened(self._folder(version) / MANIFEST) as file:
                # What is to be read is allocated first.
                return file.read(min(os.fstat(file.fileno()).st_size, MANIFEST_BYTES + 1))
        except OSError as error:
            raise unknown_version(version) from error


def opened(path: Path) -> BinaryIO:
    """A file that others made; raises OSError for a link, and for what would be waited for."""
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError(f"{path} is no file")
    return os.fdopen(file, "rb")


def unknown_version(version: int) -> WeightsRefused:
    """The refusal of a version that no medium has."""
    return WeightsRefused("unknown_version", f"There is no version {version}.")


def named(manifest: WeightManifest, version: int) -> WeightManifest:
    """The manifest itself; raises WeightsRefused for one of another version."""
    if manifest.version != version:
        message = f"The manifest at version {version} says that it is {manifest.version}."
        raise WeightsRefused("invalid_manifest", message)
    return manifest


@contextmanager
def private_folder(scratch: Path) -> Iterator[Path]:
    """A folder of its owner's alone, which goes with the block."""
    folder = Path(tempfile.mkdtemp(prefix="weights-", dir=scratch))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class ContentCheck:
    """Checks content of a manifest as it comes; raises WeightsRefused."""

    def __init__(self, manifest: WeightManifest):
        self._manifest = manifest
        self._hasher = hashlib.sha256()
        self._size = 0

    def add(self, part: bytes) -> None:
        """Takes the next bytes; raises WeightsRefused for more than were announced."""
        self._size += len(part)
        if self._size > self._manifest.size:
            raise WeightsRefused(
                "oversized_content",
                f"The content has more than the {self._manifest.size} bytes of its manifest.",
            )
        self._hasher.update(part)

    def end(self) -> None:
        """Raises WeightsRefused unless all of it came, as it was written."""
        if self._hasher.hexdigest() != self._manifest.sha256:
            raise WeightsRefused(
                "damaged_content", f"Version {self._manifest.version} is not what was written."
            )


def _copy(source: Path, target: Path, manifest: WeightManifest) -> None:
    check = ContentCheck(manifest)
    try:
        with opened(source) as read, target.open("wb") as write:
            while part := read.read(_BLOCK_BYTES):
                check.add(part)
                write.write(part)
    except OSError as error:
        message = f"The content of version {manifest.version} cannot be read."
        raise WeightsRefused("damaged_content", message) from error
    check.end()
