"""Launch of commands within walls."""

import contextlib
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from windlass.confinement import accounts, seccomp
from windlass.confinement import walls as flags
from windlass.confinement.cgroups import Group
from windlass.confinement.walls import Walls, WorkloadLimits

# Joins each group, then becomes the command: nothing is started outside of them.
_JOIN = (
    'n=$1; shift; while [ "$n" -gt 0 ]; do echo $$ > "$1" || exit 125; shift; n=$((n - 1)); '
    'done; exec "$@"'
)


@dataclass(frozen=True)
class ConfinedCommand:
    """A command, and the open files that it has to inherit."""

    command: tuple[str, ...]
    descriptors: tuple[int, ...] = ()


class Confinement(Protocol):
    """A way to start what works for tenants; `name` is the workload's own on this machine."""

    @property
    def confines(self) -> bool:
        """True if there are walls at all."""

    def launch(
        self, command: Sequence[str], walls: Walls, *, name: str, limits: WorkloadLimits
    ) -> contextlib.AbstractContextManager[ConfinedCommand]:
        """The command to start instead, valid within the context."""

    def give(self, name: str, *paths: Path) -> None:
        """Lets the workload write what lies there."""

    def show(self, path: Path) -> None:
        """Lets workloads read what lies there."""

    def limit(self, name: str, limits: WorkloadLimits) -> bool:
        """Sets other limits on a workload that runs; False where that is not possible."""

    def kills(self, name: str) -> int:
        """The number of its processes that the kernel ended for want of memory."""

    def forget(self, name: str) -> None:
        """Drops what was made for a workload that has ended."""


class Bare:
    """No walls, and of its limits the CPUs alone."""

    confines = False

    @contextlib.contextmanager
    def launch(
        self, command: Sequence[str], walls: Walls, *, name: str, limits: WorkloadLimits
    ) -> Iterator[ConfinedCommand]:
        """The command, kept to its CPUs."""
        yield ConfinedCommand((*_kept(limits), *command))

    def give(self, name: str, *paths: Path) -> None:
        """Does nothing: the workload is our own user."""

    def show(self, path: Path) -> None:
        """Does nothing: the workload is our own user."""

    def limit(self, name: str, limits: WorkloadLimits) -> bool:
        """Returns True: no limit can be set."""
        return True

    def kills(self, name: str) -> int:
        """Returns 0: no group of its own counts them."""
        return 0

    def forget(self, name: str) -> None:
        """Does nothing: nothing was made."""


@dataclass(frozen=True)
class Walled:
    """bubblewrap; started as root, with a user id of its own for each workload.

    `inner` is for walls within walls: user and limits are those around.
    """

    bwrap: str
    inner: bool = False
    confines = True

    @contextlib.contextmanager
    def launch(
        self, command: Sequence[str], walls: Walls, *, name: str, limits: WorkloadLimits
    ) -> Iterator[ConfinedCommand]:
        """The command behind its walls, its limits set before they are built."""
        group = Group(name)
        grouped = not self.inner and group.make(limits)
        joined = () if self.inner else group.made
        # Where it looks up how much memory there is, and what the kernel did for want of it.
        within = replace(walls, readable=walls.readable + (group.folders if grouped else ()))
        filtered = seccomp.program(namespaces=walls.nests)
        descriptor = seccomp.descriptor(filtered) if filtered else None
        try:
            yield ConfinedCommand(
                (
                    *_joining(joined),
                    *(() if self.inner or group.bounds_cpus else _kept(limits)),
                    *self._limited(limits, within, grouped=grouped),
                    *self._becoming(name, within),
                    *(self.bwrap, *flags.closed(within)),
                    *(() if descriptor is None else ("--seccomp", str(descriptor))),
                    "--",
                    *(() if self.inner or grouped else _counted(limits, foreign=self._foreign)),
                    *command,
                ),
                () if descriptor is None else (descriptor,),
            )
        finally:
            if descriptor is not None:
                os.close(descriptor)

    def give(self, name: str, *paths: Path) -> None:
        """Lets the workload write what lies there."""
        if self._foreign:
            for path in paths:
                accounts.own(path, accounts.workload_id(name))

    def show(self, path: Path) -> None:
        """Lets workloads read what lies there."""
        if self._foreign:
            accounts.reveal(path)

    def limit(self, name: str, limits: WorkloadLimits) -> bool:
        """Writes them to its control group; limits of each process cannot be changed."""
        return not self.inner and Group(name).change(limits)

    def kills(self, name: str) -> int:
        """The number of its processes that the kernel ended for want of memory."""
        return Group(name).kills()

    def forget(self, name: str) -> None:
        """Drops its control groups, and leaves its user id to others."""
        Group(name).remove()
        if self._foreign:
            accounts.release(name)

    @property
    def _foreign(self) -> bool:
        return not self.inner and os.geteuid() == 0

    def _limited(self, limits: WorkloadLimits, within: Walls, *, grouped: bool) -> tuple[str, ...]:
        """Returns a prefix that limits each process, where no control group does.

        The kernel, out of memory, ends these processes first."""
        if self.inner:
            return ()
        words = ["choom", "-n", "500", "--", "prlimit", "--core=0:0"]
        if not grouped and not flags.accelerators(within.devices):
            # Drivers of GPUs reserve far more than they use.
            words.append(f"--data={limits.memory}")
        return (*words, "--")

    def _becoming(self, name: str, within: Walls) -> tuple[str, ...]:
        if not self._foreign:
            return ()
        identifier = accounts.workload_id(name)
        nodes = [
            node for path in flags.accelerators(within.devices) for node in (path, *path.glob("*"))
        ]
        groups = {node.stat().st_gid for node in nodes} - {0}
        joined = f"--groups={','.join(map(str, sorted(groups)))}" if groups else "--clear-groups"
        return (
            *(self.bwrap, *flags.opened(within), "--"),
            *("setpriv", f"--reuid={identifier}", f"--regid={identifier}", joined),
            *("--no-new-privs", "--inh-caps=-all", "--bounding-set=-all", "--"),
        )


def _kept(limits: WorkloadLimits) -> tuple[str, ...]:
    """The command prefix that keeps a program to its CPUs, where the system can do that."""
    if not limits.processors or shutil.which("taskset") is None:
        return ()
    return ("taskset", "--cpu-list", ",".join(map(str, limits.processors)))


def _counted(limits: WorkloadLimits, *, foreign: bool) -> tuple[str, ...]:
    """The command prefix, within walls, that bounds processes by their user.

    Since Linux 5.14 those of a user are counted within each user namespace. Before, those of an
    ordinary user who has started us count as well, and there is no bound that is right for all.
    """
    if not foreign and _release() < (5, 14):
        return ()
    return ("prlimit", f"--nproc={limits.processes}", "--")


def _release() -> tuple[int, int]:
    major, minor, *_ = re.findall(r"\d+", os.uname().release)
    return int(major), int(minor)


def _joining(folders: Sequence[Path]) -> tuple[str, ...]:
    if not folders:
        return ()
    files = [str(folder / "cgroup.procs") for folder in folders]
    return ("/bin/sh", "-c", _JOIN, "sh", str(len(files)), *files)
