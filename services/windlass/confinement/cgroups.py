"""Control groups of workloads: memory, processes and CPUs, by cgroup v2 or v1."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import psutil

from windlass.confinement.walls import WorkloadLimits

_ROOT = Path("/sys/fs/cgroup")
_OWN = Path("/proc/self/cgroup")
_PREFIX = "windlass-"
# The kernel counts how much of the CPUs' time a group took in each of these spans.
_PERIOD_MICROSECONDS = 100_000


class Group:
    """The groups of one workload, one folder for each hierarchy; none where none can be made."""

    def __init__(self, name: str) -> None:
        parents, cpu = _parents()
        self.folders = tuple(parent / f"{_PREFIX}{name}" for parent in parents)
        self._cpu = cpu / f"{_PREFIX}{name}" if cpu else None
        # Those that were made, for a process to join.
        self.made: tuple[Path, ...] = ()
        self.bounds_cpus = False

    def make(self, limits: WorkloadLimits) -> bool:
        """Makes them with their limits; False where memory and processes cannot be bound here.

        `bounds_cpus` says whether the CPUs are, which the controller for them may refuse alone.
        """
        self.made, self.bounds_cpus = (), False
        if self.folders:
            try:
                for folder in self.folders:
                    folder.mkdir(exist_ok=True)
                self._write(limits)
                self.made = self.folders
            except OSError:
                self.remove()
        grouped = bool(self.made)
        if limits.cpus and self._cpu is not None and (grouped or self._cpu not in self.folders):
            self._bound(self._cpu, limits.cpus)
        return grouped

    def change(self, limits: WorkloadLimits) -> bool:
        """Sets other limits on what runs there; False where nothing does, or it has more."""
        try:
            runs = [(folder / "cgroup.procs").read_text() for folder in self.folders]
            self._write(limits)
        except OSError:
            return False
        return bool(runs) and all(runs)

    def _write(self, limits: WorkloadLimits) -> None:
        for folder in self.folders:
            _put(folder, _settings(folder, limits))

    def remove(self) -> None:
        """Drops them once nothing runs there; before that nothing happens."""
        for folder in (*self.folders, *((self._cpu,) if self._cpu else ())):
            with contextlib.suppress(OSError):
                folder.rmdir()

    def kills(self) -> int:
        """The number of the workload's processes that the kernel ended for want of memory."""
        for folder in self.folders:
            for file in ("memory.events", "memory.oom_control"):
                with contextlib.suppress(OSError, ValueError):
                    for line in (folder / file).read_text().splitlines():
                        name, _, count = line.partition(" ")
                        if name == "oom_kill":
                            return int(count)
        return 0

    def _bound(self, folder: Path, cpus: int) -> None:
        try:
            folder.mkdir(exist_ok=True)
            _put(folder, _quota(folder, cpus))
        except OSError:
            if folder not in self.made:
                with contextlib.suppress(OSError):
                    folder.rmdir()
            return
        self.bounds_cpus = True
        self.made = tuple(dict.fromkeys((*self.made, folder)))


def remove_abandoned(prefix: str) -> None:
    """Drops groups named by `prefix` and the id of a process that has ended."""
    parents, cpu = _parents()
    for parent in (*parents, *((cpu,) if cpu else ())):
        for folder in parent.glob(f"{_PREFIX}{prefix}*"):
            maker = folder.name.removeprefix(f"{_PREFIX}{prefix}")
            if maker.isdecimal() and not psutil.pid_exists(int(maker)):
                with contextlib.suppress(OSError):
                    folder.rmdir()


def _put(folder: Path, settings: Iterator[tuple[str, int | str]]) -> None:
    for file, value in settings:
        (folder / file).write_text(str(value))


def _settings(folder: Path, limits: WorkloadLimits) -> Iterator[tuple[str, int | str]]:
    """Files of a new group with what is written there; the first that is missing is an error."""
    if _is_unified(folder):
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


def _quota(folder: Path, cpus: int) -> Iterator[tuple[str, int | str]]:
    share = cpus * _PERIOD_MICROSECONDS
    if _is_unified(folder):
        yield "cpu.max", f"{share} {_PERIOD_MICROSECONDS}"
    else:
        yield "cpu.cfs_period_us", _PERIOD_MICROSECONDS
        yield "cpu.cfs_quota_us", share


def _is_unified(folder: Path) -> bool:
    return (folder / "cgroup.controllers").exists()


def _parents() -> tuple[list[Path], Path | None]:
    """The parents of groups: beneath our own where controllers are handed down, or beside it.

    The second is where one that bounds CPUs is made, which not all have that have the others.
    """
    own = dict(_lines())
    cpu = _ROOT / "cpu" / own["cpu"].strip("/") if "cpu" in own else None
    if "memory" in own and "pids" in own:
        return [_ROOT / kind / own[kind].strip("/") for kind in ("memory", "pids")], cpu
    if "" in own:
        mine = _ROOT / own[""].strip("/")
        for parent in (mine, mine.parent):
            with contextlib.suppress(OSError):
                if not parent.is_relative_to(_ROOT):
                    continue
                handed = set((parent / "cgroup.subtree_control").read_text().split())
                if {"memory", "pids"} <= handed:
                    return [parent], parent if "cpu" in handed else cpu
    return [], cpu


def _lines() -> Iterator[tuple[str, str]]:
    """Yields controllers, each with our group; cgroup v2 has an empty name."""
    with contextlib.suppress(OSError):
        for line in _OWN.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            for controller in controllers.split(","):
                yield controller, path
