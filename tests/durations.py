"""CPU time of each test: `build/durations.json`, and the dearest folders and tests at the end.

Seconds of processor time, of the test's own process and of every process below it, living or
waited for; unlike seconds of the clock they say the same on a busy machine. A fixture of a wider
scope counts for the test that asked for it first. Clusters, which several workers share and
nobody's process began, are not counted.
"""

import json
import os
from collections.abc import Generator
from pathlib import Path

import pytest
from tests.cluster.provision.lease import SUPERVISOR

FILE = Path(__file__).parent.parent / "build" / "durations.json"
_SHOWN = 10
_FOLDERS = 30
_TICKS = os.sysconf("SC_CLK_TCK")
_COST = "cpu_seconds"


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Notes what a test costs, before its last report is made."""
    item.stash[_BEFORE] = processor_seconds()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Hands the cost along with the last report, to wherever it is collected.

    To look is 2 ms where a server runs, so nobody looks more often.
    """
    report = yield
    if report.when == "teardown":
        report.user_properties = [(_COST, max(0.0, processor_seconds() - item.stash[_BEFORE]))]
    return report


_BEFORE = pytest.StashKey[float]()


class Collected:
    """The costs of all workers, in the process that collects their reports."""

    def __init__(self) -> None:
        self.costs: dict[str, dict[str, float]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        cost = self.costs.setdefault(report.nodeid, {"cpu": 0.0, "clock": 0.0})
        noted = dict(report.user_properties).get(_COST)
        cost["cpu"] += noted if isinstance(noted, float) else 0.0
        cost["clock"] += report.duration

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self.costs:
            return
        FILE.parent.mkdir(exist_ok=True)
        rounded = {
            name: {unit: round(seconds, 2) for unit, seconds in cost.items()}
            for name, cost in sorted(self.costs.items(), key=lambda each: -each[1]["cpu"])
        }
        FILE.write_text(json.dumps(rounded, indent=0) + "\n")
        costs = {name: cost["cpu"] for name, cost in rounded.items()}
        total = sum(costs.values())
        terminalreporter.section(f"{total / 60:.1f} min of processor time; the dearest")
        for folder, (number, seconds) in list(by_folder(costs).items())[:_FOLDERS]:
            terminalreporter.line(f"{seconds / 60:7.1f} min of {number:5} tests in {folder}")
        for name, cost in list(rounded.items())[:_SHOWN]:
            terminalreporter.line(f"{cost['cpu']:7.1f} s ({cost['clock']:6.1f} s long) {name}")


def pytest_configure(config: pytest.Config) -> None:
    """Collects where there is no other process to collect it."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Collected(), "durations-collected")


def by_folder(costs: dict[str, float]) -> dict[str, tuple[int, float]]:
    """The number of tests and their seconds by the two folders above them, the dearest first."""
    found: dict[str, tuple[int, float]] = {}
    for name, seconds in costs.items():
        folder = "/".join(name.partition("::")[0].split("/")[:-1][:3])
        number, total = found.get(folder, (0, 0.0))
        found[folder] = number + 1, total + seconds
    return dict(sorted(found.items(), key=lambda each: -each[1][1]))


def processor_seconds() -> float:
    """Seconds of this process, of all that live below it, and of what each of those waited for."""
    # A cluster is below the process whose test was the first to want it.
    children = [pid for pid in _children(os.getpid()) if not _is_cluster(pid)]
    total, pids = _ticks(os.getpid()), children
    while pids:
        pid = pids.pop()
        total += _ticks(pid)
        pids += _children(pid)
    return total / _TICKS


def _ticks(pid: int) -> int:
    """What a process took, and those that it waited for; 0 if it has ended, or on no Linux."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    # Behind the name, which may hold anything: utime, stime, cutime, cstime.
    return sum(int(field) for field in stat.rpartition(")")[2].split()[11:15])


def _children(pid: int) -> list[int]:
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        return [int(one) for task in tasks for one in (task / "children").read_text().split()]
    except OSError:
        return []


def _is_cluster(pid: int) -> bool:
    try:
        return SUPERVISOR.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
