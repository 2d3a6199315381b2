"""Room on a disk for the files of models, and the words for what has none."""

import os
from collections.abc import Iterable
from pathlib import Path

from windlass.api.models.v1 import models_pb2
from windlass_agent.download.transfer import DiskError
from windlass_agent.memory import in_units


def free_bytes(folder: Path) -> int:
    """Bytes that an ordinary user may still write to a folder's disk; raises OSError."""
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


def disk_bytes(folder: Path) -> int:
    """Bytes of a folder's disk in all; raises OSError."""
    found = os.statvfs(folder)
    return found.f_blocks * found.f_frsize


def held_bytes(folder: Path) -> int:
    """Bytes of the files in a folder; what goes meanwhile is left out."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                total += (Path(parent) / name).lstat().st_size
            except OSError:
                continue
    return total


def used_at(folder: Path) -> float:
    """The time at which a version was used last; 0 for one that somebody has just removed."""
    try:
        return folder.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def needed_bytes(files: Iterable[models_pb2.FileUrl]) -> int:
    """Bytes of the files of a version."""
    return sum(file.bytes for file in files)


def no_room(needed: int, free: int, held: int) -> DiskError:
    """The refusal of files that do not fit, since what is in use takes `held` bytes."""
    return DiskError(
        f"The model's {in_units(needed)} do not fit: {in_units(max(0, free))} are free, and models "
        f"in use take {in_units(held)}."
    )
