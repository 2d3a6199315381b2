"""A machine as its agent sees it."""

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass

import psutil

from windlass_agent import control_groups
from windlass_agent.machine import amd, nvidia
from windlass_agent.machine.devices import Device, named, visible
from windlass_agent.memory import memory_limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Resources that jobs and engines can be given."""

    devices: tuple[Device, ...] = ()
    # Numbers of the CPUs that this process may run on.
    processors: tuple[int, ...] = (0,)
    # As many of them as its control group may use at once.
    cpus: int = 1
    memory_bytes: int = 0


def look(gpus: Sequence[str] | None = None) -> Machine:
    """Returns this machine; `gpus` are indexes or ids of those to give out, None for all.

    Takes a second or more where it has to ask a driver.
    """
    found = nvidia.devices() or amd.devices()
    processors = _processors()
    return Machine(
        devices=visible(found, os.environ) if gpus is None else named(gpus, found),
        processors=processors,
        cpus=max(1, min(len(processors), _quota() // 1000)),
        memory_bytes=memory_limit() or psutil.virtual_memory().total,
    )


def _processors() -> tuple[int, ...]:
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


def _quota() -> int:
    """Thousandths of CPUs that the control group may use at once."""
    found = []
    for path in control_groups.files("cpu", "cpu.max", "cpu.cfs_quota_us"):
        with contextlib.suppress(OSError, ValueError):
            words = path.read_text().split()
            if len(words) == 1:
                words += (path.parent / "cpu.cfs_period_us").read_text().split()
            # cgroup v2 says `max` where there is no bound, v1 says -1.
            quota, period = (0 if word == "max" else int(word) for word in words)
            if quota > 0 and period > 0:
                found.append(1000 * quota // period)
    return min(found, default=10**9)
