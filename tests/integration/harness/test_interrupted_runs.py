"""A run of tests that ends early leaves no process behind."""

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from tests.support.environments.postgres import reachable_folder

REPOSITORY = Path(__file__).parents[3]
SECONDS = 60

# A database, and a server with a session of its own that pays no heed to being asked to end.
SUITE = """
    import subprocess, sys, time
    from pathlib import Path
    from tests.support.environments.postgres import start_postgres

    STUBBORN = "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)"

    def test_that_takes_long():
        subprocess.Popen([sys.executable, "-c", STUBBORN], start_new_session=True)
        with start_postgres() as url:
            Path("started").write_text(url)
            time.sleep(600)
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    with reachable_folder() as made:
        (made / "test_long.py").write_text(textwrap.dedent(SUITE))
        yield made


@pytest.fixture
def run(folder: Path, request: pytest.FixtureRequest) -> Iterator["subprocess.Popen[bytes]"]:
    """A run with everything started, as a shell starts one."""
    command = [sys.executable, "-m", "pytest", "-p", "tests.reaper", *request.param, "-s"]
    paths = [str(REPOSITORY / each) for each in ("", "services", "agent")]
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")
    }
    process = subprocess.Popen(
        command,
        cwd=folder,
        env={**environment, "PYTHONPATH": os.pathsep.join(paths)},
        process_group=0,
    )
    try:
        while not (folder / "started").exists():
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(0.05)
        yield process
    finally:
        process.kill()
        process.wait()


def both(process: "subprocess.Popen[bytes]") -> None:
    """Ctrl-C: the terminal tells all of the group."""
    os.killpg(process.pid, signal.SIGINT)


def pytest_alone(process: "subprocess.Popen[bytes]") -> None:
    """kill -9 of the process that runs the tests."""
    (runs,) = psutil.Process(process.pid).children()
    runs.kill()


def command(process: psutil.Process) -> str:
    """The command line of a process; nothing once it has ended, as workers of the database do."""
    with contextlib.suppress(psutil.Error):
        return " ".join(process.cmdline())
    return ""


@pytest.mark.parametrize(
    ("run", "end"),
    [pytest.param((), both, marks=pytest.mark.long), (("-n", "1"), both), ((), pytest_alone)],
    ids=["Ctrl-C", "Ctrl-C with xdist", "kill -9"],
    indirect=["run"],
)
def test_nothing_is_left(
    run: "subprocess.Popen[bytes]",
    end: Callable[["subprocess.Popen[bytes]"], None],
    folder: Path,
) -> None:
    started = psutil.Process(run.pid).children(recursive=True)
    commands = [command(process) for process in started]
    assert any("postgres" in one for one in commands)
    assert any("SIG_IGN" in one for one in commands)
    end(run)
    assert run.wait(SECONDS) != 0
    _, alive = psutil.wait_procs(started, timeout=SECONDS)
    assert not alive
