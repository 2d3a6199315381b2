"""Control groups of a workload, and the message where they cannot be created."""

import os
import subprocess
from pathlib import Path

import pytest

from windlass.confinement import WorkloadLimits, cgroups
from windlass.confinement.cgroups import Group

LIMITS = WorkloadLimits(memory=2**30, processes=64, cpus=3, processors=(0, 1, 2))


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(cgroups, "_ROOT", tmp_path)
    monkeypatch.setattr(cgroups, "_OWN", tmp_path / "own")
    return tmp_path


def unified(root: Path, handed: str) -> Path:
    """A group of cgroup v2 as the kernel makes it, with what its parent hands down."""
    (root / "own").write_text("0::/box\n")
    made = root / "box" / "windlass-job-1-1"
    made.mkdir(parents=True)
    (root / "box" / "cgroup.subtree_control").write_text(handed)
    for file in ("cgroup.controllers", "memory.swap.max"):
        (made / file).touch()
    return made


def test_cgroup_v2_bounds_cpus_by_a_quota(root: Path) -> None:
    made = unified(root, "cpu memory pids\n")
    group = Group("job-1-1")
    assert group.make(LIMITS)
    assert group.bounds_cpus
    assert group.made == (made,)
    read = {file: (made / file).read_text() for file in ("cpu.max", "memory.max", "pids.max")}
    assert read == {"cpu.max": "300000 100000", "memory.max": str(2**30), "pids.max": "64"}


def test_without_that_controller_the_rest_is_bounded(root: Path) -> None:
    made = unified(root, "memory pids\n")
    group = Group("job-1-1")
    assert group.make(LIMITS)
    assert not group.bounds_cpus
    assert not (made / "cpu.max").exists()


def test_cgroup_v1_has_a_group_for_each_controller(root: Path) -> None:
    (root / "own").write_text("4:memory:/box\n3:cpu,cpuacct:/\n2:pids:/\n")
    (root / "memory" / "box").mkdir(parents=True)
    for controller in ("cpu", "pids"):
        (root / controller).mkdir()
    group = Group("job-1-1")
    # The kernel's own files are there once a folder is; a plain folder takes any.
    assert group.make(LIMITS)
    assert [str(path.relative_to(root)) for path in group.made] == [
        "memory/box/windlass-job-1-1", "pids/windlass-job-1-1", "cpu/windlass-job-1-1",
    ]  # fmt: skip
    cpu = group.made[2]
    assert (cpu / "cpu.cfs_quota_us").read_text() == "300000"
    assert (cpu / "cpu.cfs_period_us").read_text() == "100000"


def test_who_asks_for_no_cpus_is_in_no_group_for_them(root: Path) -> None:
    (root / "own").write_text("4:memory:/\n3:cpu,cpuacct:/\n2:pids:/\n")
    for controller in ("memory", "cpu", "pids"):
        (root / controller).mkdir()
    group = Group("job-1-1")
    assert group.make(WorkloadLimits(memory=2**30))
    assert len(group.made) == 2
    assert list((root / "cpu").iterdir()) == []


def test_where_no_group_can_be_made_nothing_is_joined(root: Path) -> None:
    (root / "own").write_text("0::/\n")
    group = Group("job-1-1")
    assert not group.make(LIMITS)
    assert (group.made, group.bounds_cpus) == ((), False)


def test_groups_of_trials_whose_process_was_killed_are_removed(root: Path) -> None:
    """A trial that is being made, and groups of workloads, stay."""
    (root / "own").write_text("4:memory:/box\n3:cpu,cpuacct:/\n2:pids:/\n")
    dead = subprocess.Popen(["true"])
    dead.wait()
    abandoned, lives = f"windlass-trial-{dead.pid}", f"windlass-trial-{os.getpid()}"
    parents = ("memory/box", "cpu", "pids")
    for parent in parents:
        for name in (abandoned, lives, f"windlass-job-{dead.pid}-1"):
            (root / parent / name).mkdir(parents=True)
    cgroups.remove_abandoned("trial-")
    left = {
        path.name for parent in ("memory/box", "cpu", "pids") for path in (root / parent).iterdir()
    }
    assert left == {lives, f"windlass-job-{dead.pid}-1"}
