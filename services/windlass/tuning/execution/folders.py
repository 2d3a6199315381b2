"""Folders of checkpoints on this machine, while something reads or writes them."""

import asyncio
import hashlib
import shutil
import tempfile
from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic

from windlass.tuning.blobs import Blobs

# Adapters that samplers keep beside them.
KEPT = 32
# Models that runs of all parameters saved.
KEPT_MODELS = 2


class CheckpointFolders:
    """Folders to write into, and copies to read from."""

    def __init__(self, root: Path, blobs: Blobs):
        self._root = root
        self._blobs = blobs
        self._kept: OrderedDict[str, Path] = OrderedDict()
        self._read_at: dict[str, float] = {}
        # Those that are whole models, and the session that each is read for.
        self._models: dict[str, str] = {}
        self._used: dict[str, int] = {}
        self._locks: dict[str, asyncio.Lock] = {}

    @asynccontextmanager
    async def empty(self) -> AsyncIterator[Path]:
        """Yields an empty folder, which is gone afterwards."""
        async with self._passing("") as folder:
            yield folder

    @asynccontextmanager
    async def read(self, prefix: str) -> AsyncIterator[Path]:
        """Yields a folder with what lies below a prefix; raises ObjectNotFound."""
        async with self._passing(prefix) as folder:
            yield folder

    @asynccontextmanager
    async def kept(self, checkpoint_id: str, prefix: str, session_id: str) -> AsyncIterator[Path]:
        """Yields a folder like `read`, which stays for the next time while there is room.

        It stays until it has rested, and a model at the longest until its session is forgotten.
        """
        lock = self._locks.setdefault(checkpoint_id, asyncio.Lock())
        self._used[checkpoint_id] = self._used.get(checkpoint_id, 0) + 1
        try:
            async with lock:
                folder = self._kept.get(checkpoint_id)
                if folder is None:
                    folder = await self._made(prefix)
                    self._kept[checkpoint_id] = folder
                    if is_model(folder):
                        self._models[checkpoint_id] = session_id
                self._kept.move_to_end(checkpoint_id)
            yield folder
        finally:
            self._used[checkpoint_id] -= 1
            self._read_at[checkpoint_id] = monotonic()
            if not self._used[checkpoint_id]:
                del self._used[checkpoint_id], self._locks[checkpoint_id]
            await self._let_go()

    async def forget(self, session_id: str) -> None:
        """Removes the models of a session that nothing reads."""
        await self._remove([one for one, owner in self._models.items() if owner == session_id])

    async def rest(self, seconds: float) -> None:
        """Removes what nothing has read for so long, as of sessions that are parked."""
        before = monotonic() - seconds
        await self._remove([one for one in self._kept if self._read_at.get(one, before) < before])

    async def close(self) -> None:
        """Removes every folder."""
        await asyncio.to_thread(shutil.rmtree, self._root, ignore_errors=True)

    @asynccontextmanager
    async def _passing(self, prefix: str) -> AsyncIterator[Path]:
        folder = await self._made(prefix)
        try:
            yield folder
        finally:
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)

    async def _made(self, prefix: str) -> Path:
        """A new folder, with what lies below a prefix unless that is empty."""
        self._root.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder = Path(await asyncio.to_thread(tempfile.mkdtemp, dir=self._root))
        try:
            if prefix:
                await self._blobs.download(prefix, folder)
        except BaseException:
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
            raise
        return folder

    async def _let_go(self) -> None:
        models = [one for one in self._kept if one in self._models]
        adapters = [one for one in self._kept if one not in self._models]
        await self._remove(
            models[: max(0, len(models) - KEPT_MODELS)] + adapters[: max(0, len(adapters) - KEPT)]
        )

    async def _remove(self, checkpoint_ids: Sequence[str]) -> None:
        for checkpoint_id in checkpoint_ids:
            if checkpoint_id in self._used or checkpoint_id not in self._kept:
                continue
            folder = self._kept.pop(checkpoint_id)
            self._models.pop(checkpoint_id, None)
            self._read_at.pop(checkpoint_id, None)
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)


def is_model(folder: Path) -> bool:
    """True for what is a model, and no adapter on one."""
    return (folder / "config.json").is_file()


def digest_of_folder(folder: Path) -> bytes:
    """SHA-256 of the names and the contents of a folder's files."""
    found = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        with path.open("rb") as file:
            content = hashlib.file_digest(file, "sha256").digest()
        found.update(path.name.encode() + b"\0" + content)
    return found.digest()
