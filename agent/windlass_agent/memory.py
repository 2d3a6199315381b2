"""What the system did for want of memory."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

_CGROUPS = Path("/sys/fs/cgroup")
_OWN = Path("/proc/self/cgroup")
_MACHINE = Path("/proc/vmstat")


def out_of_memory_kills() -> int:
    """How often the kernel killed for memory in this control group, or else on this machine.

    Comes from cgroup v2's `memory.events` or v1's `memory.oom_control`, whichever counts this
    process; the machine's count is for a root group, which has none. 0 where nothing counts.
    """
    for path in (*_files(), _MACHINE):
        with contextlib.suppress(OSError, ValueError):
            for line in path.read_text().splitlines():
                name, _, count = line.partition(" ")
                if name == "oom_kill":
                    return int(count)
    return 0


def _files() -> Iterator[Path]:
    try:
        lines = _OWN.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, group = line.split(":", 2)
        # In a container the group is the root that it sees, whatever its own name is.
        for inside in (group.strip("/"), ""):
            if not controllers:
                yield _CGROUPS / inside / "memory.events"
            elif controllers == "memory":
                yield _CGROUPS / "memory" / inside / "memory.oom_control"
