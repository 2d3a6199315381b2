"""User ids that own nothing: one for each workload of a machine, without an entry anywhere."""

import contextlib
import fcntl
import os
import zlib
from collections.abc import Iterator
from pathlib import Path

# Past what distributions, containers and systemd give out, as systemd's own list has it.
_FIRST, _COUNT = 2_000_000_000, 2**20
# What systemd sets aside for services, for containers that have no larger ids.
_FIRST_SMALL, _COUNT_SMALL = 61_184, 4_336
_MAP = Path("/proc/self/uid_map")
# A link of each name to its id, for all agents of the machine: gone when it restarts, as they are.
_HELD = Path("/run/windlass/workload-ids")


def workload_id(name: str) -> int:
    """A user and group id for a workload of that name, no other's until `release`.

    Raises OSError when all are in use.
    """
    first, count = _range()
    with _held() as folder:
        own = folder / name
        if own.is_symlink():
            return int(own.readlink().name)
        held = {int(one.readlink().name) for one in folder.iterdir()}
        begin = zlib.crc32(name.encode())
        for number in range(begin, begin + count):
            identifier = first + number % count
            if identifier not in held:
                own.symlink_to(str(identifier))
                return identifier
    raise OSError(f"All {count} user ids of workloads are in use: see {_HELD}")


def release(name: str) -> None:
    """Leaves the id of a workload that has ended to others."""
    with contextlib.suppress(OSError), _held() as folder:
        (folder / name).unlink(missing_ok=True)


def own(path: Path, identifier: int) -> None:
    """Gives a folder or file that we have made to a workload, with all that lies in it."""
    for one in (path, *path.rglob("*")):
        os.chown(one, identifier, identifier, follow_symlinks=False)


def reveal(path: Path) -> None:
    """Lets any user read a folder whose parent keeps all but root out."""
    for one in (path, *path.rglob("*")):
        if not one.is_symlink():
            one.chmod(0o755 if one.is_dir() else 0o644)


@contextlib.contextmanager
def _held() -> Iterator[Path]:
    _HELD.mkdir(parents=True, exist_ok=True)
    folder = os.open(_HELD, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield _HELD
    finally:
        os.close(folder)


def _range() -> tuple[int, int]:
    try:
        spans = [tuple(map(int, line.split())) for line in _MAP.read_text().splitlines()]
    except OSError:
        spans = []
    whole = any(inner + count >= _FIRST + _COUNT for inner, _, count in spans)
    return (_FIRST, _COUNT) if whole else (_FIRST_SMALL, _COUNT_SMALL)
