"""One file on its way into a folder: written in threads, visible only once whole."""

import asyncio
import errno
import fcntl
import hashlib
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

from windlass.core.objects.port import (
    InvalidKey,
    ObjectStoreError,
    Sha256,
    StorageFull,
    StoreUnavailable,
)

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_PUBLISH_TRIES = 8
_FLUSH_BYTES = 16 * 2**20


@contextmanager
def storage_errors() -> Iterator[None]:
    """Raises the system's errors as the store's."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise StorageFull("The disk of the object store is full.") from error
        raise StoreUnavailable(
            f"The object store's folder cannot be written: {error.strerror}."
        ) from error


class Writer:
    """A temporary file in `incoming`, locked while we live, hashed as it grows."""

    def __init__(self, incoming: Path, threads: ThreadPoolExecutor):
        self._threads = threads
        self._path = incoming / secrets.token_hex(16)
        with storage_errors():
            self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._hash = hashlib.sha256()
        self._running: asyncio.Future[None] | None = None
        self._abandoned = False
        self._flushed = 0
        self.size = 0

    async def write(self, batch: bytes) -> None:
        """Writes a batch; returns once the previous one is written."""
        await self._settle()
        self._begin(lambda: self._append(batch))

    async def finish(self) -> Sha256:
        """Waits for the last batch; the digest of all."""
        await self._settle()
        return self._hash.digest()

    async def publish(self, path: Path, *, root: Path) -> None:
        """Makes the content durable, and then visible as `path`, somewhere below `root`."""
        self._begin(lambda: self._move(path, root))
        await self._settle()

    async def discard(self) -> None:
        """Removes what was not published, as soon as no thread writes it any more."""
        self._abandoned = True
        if self._running is None or self._running.done():
            self._remove()
            return
        # By callback, so that it happens even if we are cancelled while we wait.
        self._running.add_done_callback(self._remove_after)
        await asyncio.wait({self._running})

    def _begin(self, function: Callable[[], None]) -> None:
        self._running = asyncio.get_running_loop().run_in_executor(self._threads, function)

    async def _settle(self) -> None:
        if self._running is not None:
            # Cancelling the future would not stop the thread, only hide it from `discard`.
            await asyncio.shield(self._running)

    def _append(self, batch: bytes) -> None:
        self._hash.update(batch)
        with storage_errors():
            rest = memoryview(batch)
            while rest:
                rest = rest[os.write(self._file, rest) :]
        self.size += len(batch)
        self._flush_early()

    def _flush_early(self) -> None:
        # Starts the disk on what we have, without waiting, so that the fsync at the end finds
        # little to do: a third of the time of a large upload. Linux only.
        length = self.size - self._flushed
        if length >= _FLUSH_BYTES and hasattr(os, "posix_fadvise"):
            os.posix_fadvise(self._file, self._flushed, length, os.POSIX_FADV_DONTNEED)
            self._flushed = self.size

    def _move(self, path: Path, root: Path) -> None:
        with storage_errors():
            os.fsync(self._file)
        for _ in range(_PUBLISH_TRIES):
            if self._abandoned:
                return
            try:
                _make_folders(path.parent, root)
                self._path.rename(path)
            except FileNotFoundError:
                # A delete has just removed the folder that it had found empty.
                continue
            except (NotADirectoryError, IsADirectoryError, FileExistsError):
                raise InvalidKey(
                    "The key is a folder of another object, or lies below another object."
                ) from None
            with storage_errors():
                sync_folder(path.parent)
            return
        raise ObjectStoreError("The object's folder is being removed over and over.")

    def _remove_after(self, done: asyncio.Future[None]) -> None:
        # Looked at, so that nobody is told of an error that `put` no longer waits for.
        done.exception()
        self._remove()

    def _remove(self) -> None:
        with suppress(OSError):
            os.close(self._file)
        with suppress(OSError):
            self._path.unlink(missing_ok=True)


def _make_folders(folder: Path, root: Path) -> None:
    if folder == root or folder.is_dir():
        return
    _make_folders(folder.parent, root)
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
        sync_folder(folder.parent)
    if not folder.is_dir():
        raise NotADirectoryError(folder)


def sync_folder(folder: Path) -> None:
    """Makes the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_orphans(incoming: Path, *, older_than: float) -> None:
    """Removes what killed processes left: files that nobody holds locked, and trash."""
    for path in incoming.iterdir():
        with suppress(OSError):
            if path.stat().st_mtime > older_than:
                continue
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
                continue
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()
            finally:
                os.close(descriptor)
