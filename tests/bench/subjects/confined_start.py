"""Startup time with confinement and without.

`python -m tests.bench.subjects.confined_start` prints it.

An engine's walls and a runner's, around a Python that ends at once, so that the difference is that
of the walls alone. The floor is the same command bare, in turns with it.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from windlass.confinement import Bare, Confinement, Walls, WorkloadLimits, confinement, python_paths
from windlass_agent.executors.process.environment import child_environment

ROUNDS = 20
GOAL_MS = 100.0
LIMITS = WorkloadLimits(memory=2**30)


def start(how: Confinement, walls: Walls, name: str) -> tuple[float, float]:
    """Milliseconds from the wish to the end of a Python that does nothing, and of processor."""
    began, used = time.perf_counter(), _used()
    with how.launch([sys.executable, "-P", "-c", ""], walls, name=name, limits=LIMITS) as launch:
        subprocess.run(
            launch.command,
            check=True,
            pass_fds=launch.descriptors,
            env=child_environment(confined=how.confines),
            cwd="/",
        )
    took = (time.perf_counter() - began) * 1000
    how.forget(name)
    return took, (_used() - used) * 1000


def _used() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def measure(name: str, walls: Callable[[Path], Walls]) -> None:
    """Prints the medians of both, and what the walls add."""
    confined, bare = confinement("required"), Bare()
    with tempfile.TemporaryDirectory() as folder:
        confined.give(name, Path(folder))
        within = walls(Path(folder))
        pairs = [(start(confined, within, name), start(bare, within, name)) for _ in range(ROUNDS)]
    for index, what in enumerate(("time", "processor")):
        with_walls = statistics.median(one[index] for one, _ in pairs)
        without = statistics.median(one[index] for _, one in pairs)
        print(
            f"{name}, {what}: confined {with_walls:.1f} ms, bare {without:.1f} ms, "
            f"added {with_walls - without:.1f} ms (goal: {GOAL_MS:.0f} ms at most)"
        )


def main() -> None:
    """An engine, then a runner."""
    paths = python_paths()
    measure("engine", lambda folder: Walls(readable=paths, writable=(folder,)))
    measure(
        "runner",
        lambda folder: Walls(
            readable=paths, writable=(folder,), folder=folder, network=True, nests=True
        ),
    )


if __name__ == "__main__":
    main()
