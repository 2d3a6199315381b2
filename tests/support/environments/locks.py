"""Locks of files, which the kernel frees when their holder dies."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path


class FileLock:
    """An open file that may be locked; closing it, or dying, frees it."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)

    def share(self) -> None:
        """Waits until nobody holds it alone, then holds it with others."""
        fcntl.flock(self._descriptor, fcntl.LOCK_SH)

    def take(self) -> None:
        """Waits until nobody holds it, then holds it alone."""
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)

    def try_take(self) -> bool:
        """Holds it alone, if nobody holds it now."""
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def release(self) -> None:
        """Lets it go; it may be taken again."""
        fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def close(self) -> None:
        """Lets it go for good."""
        os.close(self._descriptor)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Holds a file's lock alone for the block."""
    lock = FileLock(path)
    try:
        lock.take()
        yield
    finally:
        lock.close()
