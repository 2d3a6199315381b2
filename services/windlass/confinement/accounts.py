"""User ids that own nothing: one for each workload, without an entry anywhere."""

import os
import zlib
from pathlib import Path

# Past what distributions, containers and systemd give out, as systemd's own list has it.
_FIRST, _COUNT = 2_000_000_000, 2**20
# What systemd sets aside for services, for containers that have no larger ids.
_FIRST_SMALL, _COUNT_SMALL = 61_184, 4_336
_MAP = Path("/proc/self/uid_map")


def workload_id(name: str) -> int:
    """A user and group id for a workload of that name: always the same, and nobody else's."""
    first, count = _range()
    return first + zlib.crc32(name.encode()) % count


def own(path: Path, identifier: int) -> None:
    """Gives a folder or file that we have made to a workload, with all that lies in it."""
    for one in (path, *path.rglob("*")):
        os.chown(one, identifier, identifier, follow_symlinks=False)


def reveal(path: Path) -> None:
    """Lets any user read a folder whose parent keeps all but root out."""
    for one in (path, *path.rglob("*")):
        if not one.is_symlink():
            one.chmod(0o755 if one.is_dir() else 0o644)


def _range() -> tuple[int, int]:
    try:
        spans = [tuple(map(int, line.split())) for line in _MAP.read_text().splitlines()]
    except OSError:
        spans = []
    whole = any(inner + count >= _FIRST + _COUNT for inner, _, count in spans)
    return (_FIRST, _COUNT) if whole else (_FIRST_SMALL, _COUNT_SMALL)
