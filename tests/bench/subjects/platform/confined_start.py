"""Startup time with confinement and without.

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

from tests.bench.figures import Figure, Options, at_most, plain

from windlass.confinement import Bare, Confinement, Walls, WorkloadLimits, confinement, python_paths
from windlass_agent.executors.process.environment import child_environment

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


async def measure(options: Options) -> list[Figure]:
    """The medians for an engine's walls and a runner's, and what either adds."""
    paths, rounds = python_paths(), 5 if options.quick else 20
    engine = _added(
        "engine", lambda folder: Walls(readable=paths, writable=(folder,)), rounds=rounds
    )
    runner = _added(
        "runner",
        lambda folder: Walls(
            readable=paths, writable=(folder,), folder=folder, network=True, nests=True
        ),
        rounds=rounds,
    )
    return [*engine, *runner]


def _added(name: str, walls: Callable[[Path], Walls], *, rounds: int) -> list[Figure]:
    confined, bare = confinement("required"), Bare()
    with tempfile.TemporaryDirectory() as folder:
        confined.give(name, Path(folder))
        within = walls(Path(folder))
        pairs = [(start(confined, within, name), start(bare, within, name)) for _ in range(rounds)]
    (with_walls, cpu), (without, bare_cpu) = (
        [statistics.median(values) for values in zip(*side, strict=True)]
        for side in zip(*pairs, strict=True)
    )
    return [
        at_most(f"confined_{name}_added", with_walls - without, "ms", GOAL_MS),
        plain(f"confined_{name}", with_walls, "ms").beside("bare", without),
        plain(f"confined_{name}_cpu", cpu, "ms").beside("bare", bare_cpu),
    ]
