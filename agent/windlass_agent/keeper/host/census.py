"""Processes of a resident as the kernel shows them, and those that nobody waits for."""

import os
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

# In the environment of all that a resident starts, whatever group it is in.
MARK = "WINDLASS_RESIDENT"
_PROC = Path("/proc")


def members(workload_id: str, group: int) -> list[int]:
    """The processes of a resident that run: those of its group, and those that bear its mark."""
    mark = f"{MARK}={workload_id}".encode()
    return [
        pid
        for pid, state, _, found in _processes()
        # One that is a zombie holds nothing any more.
        if state != "Z" and (found == group > 0 or mark in _environment(pid))
    ]


def memory_bytes(pids: Collection[int]) -> int:
    """Memory of processes that is theirs, and that no other use of it would free."""
    return sum(map(_own_bytes, pids))


def disk_bytes(folder: Path) -> int:
    """Size of all files below a folder, as far as they stay while it looks."""
    found = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                found += (Path(parent) / name).lstat().st_blocks * 512
    return found


class Orphans:
    """Processes that nobody waits for, and that the kernel leaves to this one."""

    def __init__(self) -> None:
        self._seen = frozenset[int]()

    def reap(self, waited: Collection[int]) -> None:
        """Takes leave of those that have ended; `waited` are somebody's.

        At its second look: whoever has just started a process may not have said so yet.
        """
        ended = frozenset(
            pid
            for pid, state, parent, _ in _processes()
            if state == "Z" and parent == os.getpid() and pid not in waited
        )
        for pid in ended & self._seen:
            with suppress(OSError):
                os.waitpid(pid, os.WNOHANG)
        self._seen = ended


def _processes() -> Iterator[tuple[int, str, int, int]]:
    """Each process: its id, its state, its parent and its group."""
    for path in _PROC.iterdir():
        if path.name.isdecimal():
            with suppress(OSError):
                # The command's name is in parentheses, and may have any.
                _, _, rest = (path / "stat").read_text(errors="replace").rpartition(")")
                state, parent, group, *more = rest.split()
                if state == "Z" and int(more[14]) > 1:
                    # Its first thread has ended, and others hold all that it has.
                    state = "D"
                yield int(path.name), state, int(parent), int(group)


def _environment(pid: int) -> list[bytes]:
    with suppress(OSError):
        return (_PROC / str(pid) / "environ").read_bytes().split(b"\0")
    return []


def _own_bytes(pid: int) -> int:
    found = 0
    with suppress(OSError):
        for line in (_PROC / str(pid) / "status").read_text(errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name in ("RssAnon", "RssShmem"):
                found += int(value.split()[0]) * 1024
    return found
