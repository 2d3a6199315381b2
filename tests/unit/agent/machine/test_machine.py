"""Size of a machine within its control group."""

from pathlib import Path

import pytest

from windlass_agent import control_groups
from windlass_agent.machine import Machine, look


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The root of control groups; of cgroup v2 until a test says otherwise."""
    own = tmp_path / "own"
    own.write_text("0::/box\n")
    monkeypatch.setattr(control_groups, "_OWN", own)
    monkeypatch.setattr(control_groups, "_ROOT", tmp_path)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {7, 5, 3, 1})
    (tmp_path / "box").mkdir()
    return tmp_path


def test_all_that_the_process_may_use_is_given_out(groups: Path) -> None:
    found = look([])
    assert (found.processors, found.cpus, found.devices) == ((1, 3, 5, 7), 4, ())
    assert found.memory_bytes > 2**28


@pytest.mark.parametrize(
    ("text", "cpus"),
    [("max 100000", 4), ("250000 100000", 2), ("50000 100000", 1), ("900000 100000", 4), ("x", 4)],
)
def test_a_quota_of_cgroup_v2_bounds_it(groups: Path, text: str, cpus: int) -> None:
    (groups / "box" / "cpu.max").write_text(text)
    assert look([]).cpus == cpus


@pytest.mark.parametrize(("quota", "cpus"), [(-1, 4), (300_000, 3)])
def test_a_quota_of_cgroup_v1_bounds_it(groups: Path, quota: int, cpus: int) -> None:
    (groups / "own").write_text("3:cpuset:/\n2:cpu,cpuacct:/box\n1:memory:/box\n")
    for controller in ("cpu", "memory"):
        (groups / controller / "box").mkdir(parents=True)
    (groups / "cpu" / "box" / "cpu.cfs_quota_us").write_text(str(quota))
    (groups / "cpu" / "box" / "cpu.cfs_period_us").write_text("100000")
    (groups / "memory" / "box" / "memory.limit_in_bytes").write_text(str(2**29))
    found = look(["a", "b"])
    assert (found.cpus, found.memory_bytes) == (cpus, 2**29)
    assert [device.id for device in found.devices] == ["a", "b"]


def test_there_is_always_a_cpu() -> None:
    assert Machine().cpus == 1
