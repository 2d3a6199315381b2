"""Walks of a folder of objects, one step an object, so that threads do a page of them at a time."""

import os
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from windlass.core.objects.port import ObjectInfo

MISSING = (FileNotFoundError, NotADirectoryError, IsADirectoryError)


def infos(folder: Path, prefix: str) -> Iterator[ObjectInfo]:
    """The objects below a folder whose keys begin with `prefix`.

    In the order of S3, which compares whole keys: folders sort with a slash.
    """
    named = [one.name + "/" if one.is_dir() else one.name for one in _entries(folder)]
    for name in sorted(named):
        if name.endswith("/"):
            yield from infos(folder / name, prefix + name)
        elif (found := info(prefix + name, folder / name)) is not None:
            yield found


def info(key: str, path: Path) -> ObjectInfo | None:
    """Returns one object, None when there is none."""
    with suppress(*MISSING):
        status = path.stat()
        return ObjectInfo(key, status.st_size, datetime.fromtimestamp(status.st_mtime, UTC))
    return None


def sizes(folder: Path | str) -> Iterator[int]:
    """The bytes of each object below a folder, in no order: sorting many names takes long."""
    for entry in _entries(folder):
        if entry.is_dir():
            yield from sizes(entry.path)
            continue
        with suppress(*MISSING):
            yield entry.stat().st_size


def removed(folder: Path | str) -> Iterator[str]:
    """Removes each object below a folder, and then the folder."""
    for entry in _entries(folder):
        if entry.is_dir():
            yield from removed(entry.path)
            continue
        with suppress(*MISSING):
            os.unlink(entry.path)  # noqa: PTH108 - a Path for each costs half as much again
            yield entry.name
    # One that has got an object meanwhile stays.
    with suppress(OSError):
        Path(folder).rmdir()


def _entries(folder: Path | str) -> Iterator[os.DirEntry[str]]:
    with suppress(*MISSING), os.scandir(folder) as entries:
        yield from entries
