"""Locks of files, which the kernel frees when their holder dies."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path


class FileLock:
    """An open file that may be locked; closing it or ending the process frees it."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)

    def share(self) -> None:
        """Takes the lock shared; waits for an exclusive holder."""
        fcntl.flock(self._descriptor, fcntl.LOCK_SH)

    def take(self) -> None:
        """Takes the lock exclusively; waits for every other holder."""
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)

    def try_take(self) -> bool:
        """Takes the lock exclusively if nobody holds it; returns whether it did."""
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def release(self) -> None:
        """Releases the lock, which may be taken again."""
        fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def close(self) -> None:
        """Releases the lock and closes the file."""
        os.close(self._descriptor)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Holds a file's lock exclusively for the block."""
    lock = FileLock(path)
    try:
        lock.take()
        yield
    finally:
        lock.close()
