"""Comparison of a version that is found with its list."""

import hashlib
import os
import stat
from pathlib import Path

from windlass.api.models.v1 import models_pb2

# Of a version that is found, so many bytes are read and compared, the smallest files first.
CHECKED_BYTES = 16 * 2**30


def is_intact(folder: Path, wanted: list[models_pb2.FileUrl]) -> bool:
    """Compares a folder with its list: names, sizes, and digests as far as `CHECKED_BYTES`.

    Raises OSError for what cannot be read: it may be as it was.
    """
    sizes: dict[str, int] = {}
    for parent, folders, names in os.walk(folder, onerror=_rise):
        for path in (Path(parent, name) for name in (*folders, *names)):
            found = path.lstat()
            if stat.S_ISREG(found.st_mode):
                sizes[str(path.relative_to(folder))] = found.st_size
            elif not stat.S_ISDIR(found.st_mode):
                return False
    if sizes != {file.path: file.bytes for file in wanted}:
        return False
    left = CHECKED_BYTES
    for file in sorted(wanted, key=lambda one: one.bytes):
        left -= file.bytes
        if left >= 0:
            with (folder / file.path).open("rb") as content:
                if hashlib.file_digest(content, "sha256").digest() != file.sha256:
                    return False
    return True


def _rise(error: OSError) -> None:
    raise error
