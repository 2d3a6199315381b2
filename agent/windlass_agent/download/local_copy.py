"""Copies of objects whose store is a folder of this machine, without a connection."""

import asyncio
import errno
import hashlib
import os
from collections.abc import Callable, Iterator
from io import FileIO
from pathlib import Path

from windlass.api.models.v1 import models_pb2

# The file that a URL names, where this process may read the store's folder; else None.
LocalObjects = Callable[[str], Path | None]
_SLICE_BYTES = 8 * 2**20


def no_objects(_url: str) -> Path | None:
    """Knows no store's folder."""
    return None


async def copied(source: Path, file: models_pb2.FileUrl, path: Path) -> bool:
    """Copies a file and returns True if the copy is the one that was promised.

    It is not where the source is another one, or where one of the two cannot be used in this way.
    Raises OSError for a disk without room.
    """
    steps = _copy(source, file, path)
    is_same: bool | None = None
    try:
        while is_same is None:
            # A slice at a time, since names of hosts are looked up by the same threads.
            is_same = await asyncio.to_thread(next, steps)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise
        return False
    return is_same


def _copy(source: Path, file: models_pb2.FileUrl, path: Path) -> Iterator[bool | None]:
    """Copies in the kernel, and reads what has arrived; yields None while there is more to do.

    Who gives up leaves it to the thread that has it last to close the files.
    """
    digest, size = hashlib.sha256(), 0
    with source.open("rb", buffering=0) as taken, _private(path) as out:
        if os.fstat(taken.fileno()).st_size != file.bytes:
            yield False
        while size < file.bytes:
            yield None
            wanted = min(_SLICE_BYTES, file.bytes - size)
            copied_bytes = os.copy_file_range(taken.fileno(), out.fileno(), wanted, size, size)
            data = out.read(copied_bytes)
            if not data or len(data) != copied_bytes:
                yield False
            digest.update(data)
            size += copied_bytes
        os.fsync(out.fileno())
        yield digest.digest() == file.sha256


def _private(path: Path) -> FileIO:
    # A new one: a thread that nobody waits for any more may be late, and the file another copy's.
    return FileIO(path, "x+", opener=lambda name, flags: os.open(name, flags, 0o600))
