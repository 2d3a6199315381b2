"""A program within walls, with pipes to the test."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from windlass.confinement import Confinement, Walls, WorkloadLimits, python_paths
from windlass.confinement.environment import child_environment

LIMITS = WorkloadLimits(memory=2**28, processes=64)


@contextlib.contextmanager
def started(
    walled: Confinement, code: str, *arguments: str, limits: WorkloadLimits = LIMITS, **walls: Any
) -> Iterator["subprocess.Popen[str]"]:
    """A Python within walls, with pipes."""
    command = [sys.executable, "-I", "-c", code, *arguments]
    within = Walls(**{**walls, "readable": (*python_paths(), *walls.get("readable", ()))})
    with walled.launch(command, within, name="test", limits=limits) as launch:
        process = subprocess.Popen(
            launch.command,
            pass_fds=launch.descriptors,
            env=child_environment(confined=True),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd="/",
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        walled.forget("test")
