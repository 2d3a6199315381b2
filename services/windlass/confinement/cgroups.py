"""Control groups of workloads: memory and processes, by cgroup v2 or v1."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from windlass.confinement.walls import Limits

_ROOT = Path("/sys/fs/cgroup")
_OWN = Path("/proc/self/cgroup")
_PREFIX = "windlass-"


class Group:
    """The groups of one workload, one folder for each hierarchy; none where none can be made."""

    def __init__(self, name: str) -> None:
        self.folders = tuple(parent / f"{_PREFIX}{name}" for parent in _parents())

    def make(self, limits: Limits) -> bool:
        """Makes them with their limits; False when that is not possible here."""
        if not self.folders:
            return False
        try:
            for folder in self.folders:
                folder.mkdir(exist_ok=True)
            self._write(limits)
        except OSError:
            self.remove()
            return False
        return True

    def change(self, limits: Limits) -> bool:
        """Sets other limits on what runs there; False where nothing does, or it has more."""
        try:
            runs = [(folder / "cgroup.procs").read_text() for folder in self.folders]
            self._write(limits)
        except OSError:
            return False
        return bool(runs) and all(runs)

    def _write(self, limits: Limits) -> None:
        for folder in self.folders:
            for file, value in _settings(folder, limits):
                (folder / file).write_text(str(value))

    def remove(self) -> None:
        """Drops them once nothing runs there; before that nothing happens."""
        for folder in self.folders:
            with contextlib.suppress(OSError):
                folder.rmdir()

    def kills(self) -> int:
        """How often the kernel ended one of the workload's processes for want of memory."""
        for folder in self.folders:
            for file in ("memory.events", "memory.oom_control"):
                with contextlib.suppress(OSError, ValueError):
                    for line in (folder / file).read_text().splitlines():
                        name, _, count = line.partition(" ")
                        if name == "oom_kill":
                            return int(count)
        return 0


def _settings(folder: Path, limits: Limits) -> Iterator[tuple[str, int]]:
    """Files of a new group with what is written there; the first that is missing is an error."""
    if (folder / "cgroup.controllers").exists():
        yield "memory.max", limits.memory
        yield "pids.max", limits.processes
        if (folder / "memory.swap.max").exists():
            yield "memory.swap.max", 0
    elif folder.parts[:5] == (*_ROOT.parts, "memory"):
        swaps = (folder / "memory.memsw.limit_in_bytes").exists()
        if swaps:
            # The limit of both is never below that of memory, whichever way that one goes.
            yield "memory.memsw.limit_in_bytes", -1
        yield "memory.limit_in_bytes", limits.memory
        if swaps:
            yield "memory.memsw.limit_in_bytes", limits.memory
    else:
        yield "pids.max", limits.processes


def _parents() -> list[Path]:
    """Where groups are made: beneath our own where controllers are handed down, or beside it."""
    own = dict(_lines())
    if "memory" in own and "pids" in own:
        return [_ROOT / kind / own[kind].strip("/") for kind in ("memory", "pids")]
    if "" in own:
        mine = _ROOT / own[""].strip("/")
        for parent in (mine, mine.parent):
            with contextlib.suppress(OSError):
                if parent.is_relative_to(_ROOT) and {"memory", "pids"} <= set(
                    (parent / "cgroup.subtree_control").read_text().split()
                ):
                    return [parent]
    return []


def _lines() -> Iterator[tuple[str, str]]:
    """Our group by its controller; that of cgroup v2 by an empty name."""
    with contextlib.suppress(OSError):
        for line in _OWN.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            for controller in controllers.split(","):
                yield controller, path
