"""Amount of available memory, and the kernel's out-of-memory kills."""

import contextlib
from pathlib import Path

from windlass.confinement import WorkloadLimits
from windlass_agent import control_groups

# What an engine needs for each byte of its weights, which may be widened as they are read.
MEMORY_FOR_WEIGHTS = 4
_MACHINE = Path("/proc/vmstat")
_TOTAL = Path("/proc/meminfo")


def out_of_memory_kills() -> int:
    """The number of kernel kills for memory in this control group, or else on this machine.

    Comes from cgroup v2's `memory.events` or v1's `memory.oom_control`, whichever counts this
    process; the machine's count is for a root group, which has none. 0 where nothing counts.
    """
    for path in (*control_groups.files("memory", "memory.events", "memory.oom_control"), _MACHINE):
        with contextlib.suppress(OSError, ValueError):
            for line in path.read_text().splitlines():
                name, _, count = line.partition(" ")
                if name == "oom_kill":
                    return int(count)
    return 0


def memory_limit() -> int:
    """Bytes that this process and its kin may use: of its control group, or else all there are."""
    found = []
    for path in (*control_groups.files("memory", "memory.max", "memory.limit_in_bytes"), _TOTAL):
        with contextlib.suppress(OSError, ValueError):
            words = path.read_text().split()
            # cgroup v2 says `max` where there is no limit.
            found.append(int(words[1]) * 1024 if path == _TOTAL else int(words[0]))
    return min(found, default=0)


def default_limits(asked: int = 0) -> WorkloadLimits:
    """The limits of a workload on this machine: the memory asked for, else most of all there is."""
    return WorkloadLimits(memory=asked or max(2**30, memory_limit() * 9 // 10))


def engine_bound(needed: int, engines: int) -> int:
    """Returns the memory that an engine may use where nobody set a share.

    That is the bytes `needed`, or the share of one in so many `engines` where that is more; never
    more than most of what there is.
    """
    most = default_limits().memory
    return min(most, max(most // engines, needed))


def in_units(size: int) -> str:
    """Bytes for people: `512 MiB`, `1.5 GiB`."""
    amount, unit = float(size), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if amount < 1024:
            break
        amount, unit = amount / 1024, larger
    return f"{amount:.1f}".removesuffix(".0") + f" {unit}"
