"""Bounds on the memory and the processes of a workload, with and without a control group."""

import os
import signal
import subprocess
from pathlib import Path

import pytest
from tests.integration.confinement.starting import LIMITS, started

from windlass.confinement import Confinement, Walls, WorkloadLimits, cgroups
from windlass.confinement.environment import child_environment


def test_a_workload_gets_no_more_memory_than_its_own(walled: Confinement) -> None:
    code = "import os\nblocks = []\nwhile len(blocks) < 64: blocks.append(os.urandom(2**24))"
    with started(walled, code) as process:
        process.communicate(timeout=120)
        # Killed by its control group, or refused by its limit.
        assert process.returncode in (1, 128 + signal.SIGKILL)


def test_limits_that_are_set_later_hold(walled: Confinement) -> None:
    code = (
        "import os\nprint('on', flush=True)\ninput()\nblocks = []\n"
        "while len(blocks) < 64: blocks.append(os.urandom(2**24))"
    )
    with started(walled, code, limits=WorkloadLimits(memory=2**33)) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "on\n"
        changed = walled.limit("test", LIMITS)
        process.communicate("\n", timeout=120)
        # Without a control group those from before hold, and nobody is told otherwise.
        assert process.returncode == (128 + signal.SIGKILL if changed else 0)
    assert not walled.limit("unheard-of", LIMITS)


@pytest.mark.parametrize("grouped", [True, False])
@pytest.mark.parametrize("user", [None, 12_345])
def test_a_workload_gets_no_more_processes_than_its_own(
    walled: Confinement,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    user: int | None,
    *,
    grouped: bool,
) -> None:
    """By a control group or without one, started by us or by an ordinary user."""
    becoming: list[str] = []
    if user is not None and os.geteuid() == 0:
        becoming = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "--"]
        monkeypatch.setattr(os, "geteuid", lambda: user)
    if becoming or not grouped:
        # Nobody has a group there, and an ordinary user may not make one in root's.
        monkeypatch.setattr(cgroups, "_OWN", tmp_path / "none")
    forks = "n=0; while [ $n -lt 500 ]; do n=$((n + 1)); echo $n; sleep 60 >&- & done"
    command = ["/bin/sh", "-c", forks]
    with walled.launch(command, Walls(tied=True), name="test", limits=LIMITS) as launch:
        process = subprocess.Popen(
            [*becoming, *launch.command],
            pass_fds=launch.descriptors,
            env=child_environment(confined=True),
            stdout=subprocess.PIPE,
            text=True,
            cwd="/",
        )
    try:
        assert process.stdout is not None
        count = len(list(process.stdout))
    finally:
        process.kill()
        process.wait()
        walled.forget("test")
    assert LIMITS.processes / 2 < count < LIMITS.processes
