"""Fixtures for every test."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import psutil
import pytest
import structlog
from tests.campaigns import CAMPAIGNS
from tests.support.databases.emptied import Databases
from tests.support.environments import postgres
from tests.support.processes import warm

pytest_plugins = [
    "tests.broken_runs",
    "tests.cluster.fixtures",
    "tests.collected",
    "tests.durations",
    "tests.leftovers",
    "tests.parts",
    "tests.reaper",
]

# A machine that is busy with something else is no failure.
hypothesis.settings.register_profile(
    "busy", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("busy")

# A shell's background jobs ignore SIGINT, and so would every command that a test interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A page of local variables for each expected failure costs more than many a test.
structlog.configure(
    processors=[
        *structlog.get_config()["processors"][:-1],
        structlog.dev.ConsoleRenderer(
            colors=False, exception_formatter=structlog.dev.plain_traceback
        ),
    ]
)

HERE = Path(__file__).parent
QUICK = ("unit", "contract", "architecture")

# The part of the other files over which those are spread that mostly wait.
SPREAD = {"cluster": 0.9, "vllm": 0.9}

# The marks of what takes minutes, or keeps all others off the clusters meanwhile.
LONG = ("long", "alone")

# Why the tests of a folder or a file have a second try; in every other the first answer counts.
SECOND_TRY = {
    "cluster": "Kubernetes, Kueue and Trainer have races of their own, which we cannot mend",
    "faults/test_killed_agents.py": "a real training may end before it is killed",
    "faults/test_killed_jobs.py": "a real training may end before it is killed",
    "faults/test_many_agents.py": "agents die at random, perhaps all of them between two jobs",
    "faults/test_partition.py": "a real training runs beside the patience of two sides",
    "faults/test_previous_agent.py": "the release before has races that were fixed since",
    "faults/test_storage.py": "any of several writers meets the full disk first",
    "faults/serving/test_streams_and_keys.py": "an engine may answer before it is killed",
    "faults/tunnel/test_tunnel_killed.py": "the kernel chooses the connection of a balancer",
    "faults/test_two_servers.py": "a real training runs beside the loss of a server",
}


# Behind the fixtures of clusters, which mark what uses one.
@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out LONG tests unless LONG=1 is set, gives second tries, and sorts the files.

    The summary lists tests that needed their second try as RERUN.
    """
    for item in items:
        if _folder(item.path) in SECOND_TRY or _file(item.path) in SECOND_TRY:
            item.add_marker(pytest.mark.flaky(reruns=1))
        if _file(item.path) in CAMPAIGNS:
            item.add_marker(pytest.mark.long)
    if not _with_long():
        left_out = [item for item in items if any(map(item.get_closest_marker, LONG))]
        items[:] = [item for item in items if item not in left_out]
        config.hook.pytest_deselected(items=left_out)
    turns = _turns(items)
    items.sort(key=lambda item: turns[item.path])


def _file(path: Path) -> str:
    return path.relative_to(HERE).as_posix() if path.is_relative_to(HERE) else ""


def _folder(path: Path) -> str:
    return path.relative_to(HERE).parts[0] if path.is_relative_to(HERE) else ""


def _turns(items: list[pytest.Item]) -> dict[Path, tuple[int, float]]:
    """Returns a sort key for each file.

    Quick files come first, because they find most in the least time, and then those that train,
    because they take longest. Files that use a cluster mostly wait, and those that have a vLLM wait
    for one another, so each kind is spread evenly over most of the rest, the last files of which
    are short enough that all workers end together.
    """
    marked = {
        mark: {item.path for item in items if item.get_closest_marker(mark)}
        for mark in ("cluster", "vllm", "torch")
    }
    kinds: dict[str, list[Path]] = {"quick": [], "computes": [], "cluster": [], "vllm": []}
    for path in dict.fromkeys(item.path for item in items):
        spread = (mark for mark in ("cluster", "vllm") if path in marked[mark])
        is_quick = _folder(path) in QUICK
        kinds["quick" if is_quick else next(spread, "computes")].append(path)
    trains = marked["torch"]
    kinds["computes"].sort(key=lambda path: path not in trains)
    return {
        path: (0 if kind == "quick" else 1, SPREAD.get(kind, 1.0) * number / len(paths))
        for kind, paths in kinds.items()
        for number, path in enumerate(paths)
    }


def pytest_unconfigure() -> None:
    """Ends the processes whose forks are servers, commands, trainers and engines."""
    warm.FORKS.stop()
    warm.LIBRARIES.stop()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Three for each processor, as half of a test's time is spent waiting; fewer in less memory.

    Long tests hold several clusters and trainers at once.
    """
    gigabytes = psutil.virtual_memory().total // 10**9
    most = gigabytes // (6 if _with_long() else 4)
    return max(1, min(len(os.sched_getaffinity(0)) * 3, most))


def _with_long() -> bool:
    return os.environ.get("LONG", "") not in ("", "0")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Prints why each second try was necessary, which a pass would hide."""
    for report in terminalreporter.stats.get("rerun", ()):
        why = getattr(report.longrepr, "reprcrash", None) or report.longrepr
        first, _, _ = str(getattr(why, "message", why)).partition("\n")
        terminalreporter.line(f"second try of {report.nodeid} ({report.when}): {first[:300]}")


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """A real Postgres, one for the session."""
    with postgres.start_postgres() as url:
        yield url


@pytest.fixture(scope="session")
def schema_template(postgres_url: str) -> str:
    """A database that has every table, to copy."""
    return postgres.make_template(postgres_url)


@pytest.fixture(scope="session")
def empty_databases(postgres_url: str, schema_template: str) -> Databases:
    """Databases for one test after the other."""
    return Databases(postgres_url, schema_template)


@pytest.fixture
def database_url(empty_databases: Databases) -> Iterator[str]:
    """An empty database of this test's own, with the schema at its head."""
    with empty_databases.one() as url:
        yield url
