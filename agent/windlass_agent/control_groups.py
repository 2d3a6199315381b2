"""Files of the control groups that this process is in."""

from collections.abc import Iterator
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")
_OWN = Path("/proc/self/cgroup")


def files(controller: str, unified: str, legacy: str) -> Iterator[Path]:
    """Yields where the group of this process has a file of cgroup v2, or of a controller of v1."""
    try:
        lines = _OWN.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, group = line.split(":", 2)
        # In a container the group is the root that it sees, whatever its own name is.
        for inside in (group.strip("/"), ""):
            if not controllers:
                yield _ROOT / inside / unified
            elif controller in controllers.split(","):
                yield _ROOT / controller / inside / legacy
