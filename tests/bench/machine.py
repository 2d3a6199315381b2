"""Kernel statistics of this machine and of a process."""

import datetime
import os
import platform
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[2]


def description() -> str:
    """Processor, cores, memory, system."""
    text = Path("/proc/cpuinfo").read_text()
    names = [line.split(":", 1)[1].strip() for line in text.splitlines() if "model name" in line]
    memory = psutil.virtual_memory().total / 2**30
    return (
        f"{os.cpu_count()} x {names[0] if names else platform.machine()}, {memory:.0f} GiB, "
        f"Linux {platform.release().split('-')[0]}, Python {platform.python_version()}"
    )


def now() -> str:
    """The time in UTC, ISO 8601."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def commit() -> str:
    """The commit that is checked out, `+` when the code differs from it."""
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty=+", "--exclude=*"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    return done.stdout.strip()


def busy_cores(seconds: float = 1.0) -> float:
    """The number of cores that others keep busy meanwhile."""
    before = psutil.cpu_times()
    time.sleep(seconds)
    after = psutil.cpu_times()
    total = sum(after) - sum(before)
    idle = after.idle + after.iowait - before.idle - before.iowait
    return max(0.0, (os.cpu_count() or 1) * (1 - idle / total)) if total else 0.0


def cpu_seconds(pid: int) -> float:
    """User and system time of a process and the children that it waited for or still has."""
    process = psutil.Process(pid)
    times = process.cpu_times()
    spent: float = times.user + times.system
    for child in process.children(recursive=True):
        its = child.cpu_times()
        spent += its.user + its.system
    return spent


def pin(pid: int, cores: set[int]) -> None:
    """Keeps every thread of a process on some cores; threads to come inherit it."""
    for thread in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setaffinity(int(thread.name), cores)


@contextmanager
def apart() -> Iterator[tuple[set[int], set[int]]]:
    """A core for what is measured, and the others, on which this process is during the block.

    What it starts meanwhile is on them too.
    """
    before = os.sched_getaffinity(0)
    core = {min(before)}
    others = before - core or core
    os.sched_setaffinity(0, others)
    try:
        yield core, others
    finally:
        os.sched_setaffinity(0, before)


def memory_bytes(pid: int, field: str) -> int:
    """`VmRSS` or `VmHWM`, its peak, of a process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise LookupError(field)


def forget_peak(pid: int) -> None:
    """Begins `VmHWM` anew from the present size."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")
