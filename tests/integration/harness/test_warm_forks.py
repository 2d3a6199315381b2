"""A forked server or command is to its test what an interpreter of its own is."""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.support.processes import warm
from tests.support.processes.forked import ForkServer
from tests.support.processes.forked.own import Fork, run
from tests.support.processes.windlass import make_single, running
from tests.support.waiting import wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks are Linux's")
Start = Callable[..., Fork]

PLACE = """
import json, os, sys
print(json.dumps([dict(os.environ), os.getcwd(), sys.argv, sys.executable, sys.stdin.read()]))
print("why", file=sys.stderr)
sys.exit(3)
"""
WAITS = """
import os, pathlib, signal
signal.signal(signal.SIGTERM, lambda *_: os._exit(5))
pathlib.Path("draft").write_text(str(os.getpid()))
os.rename("draft", "fork")
signal.pause()
"""


@pytest.fixture
def server() -> Iterator[ForkServer]:
    made = ForkServer(Path(sys.executable), ())
    yield made
    made.stop()


@pytest.fixture
def start(server: ForkServer, tmp_path: Path) -> Iterator[Start]:
    """Starts a script of a code."""
    started: list[Fork] = []

    def start(code: str, **options: Any) -> Fork:
        with Path(os.devnull).open("r+b") as nothing:
            streams = [nothing.fileno()] * 3
            started.append(
                Fork(
                    server.address,
                    _script(tmp_path, code),
                    streams=streams,
                    environment=os.environ,
                    folder=tmp_path,
                    **options,
                )
            )
        return started[-1]

    yield start
    for fork in started:
        with contextlib.suppress(RuntimeError, ProcessLookupError):
            fork.kill()
        with contextlib.suppress(ProcessLookupError):
            os.kill(fork.pid, 9)


def _script(folder: Path, code: str) -> dict[str, Any]:
    (folder / "script.py").write_text(code)
    return {"script": str(folder / "script.py"), "arguments": ["first"]}


def test_a_program_has_its_place_and_its_streams(server: ForkServer, tmp_path: Path) -> None:
    environment = {"NAME": "ä value"}
    given = "told\n" * 50_000
    program = _script(tmp_path, PLACE)
    options: dict[str, Any] = {"environment": environment, "folder": tmp_path, "timeout": 60}
    done = run(server.address, program, given=given, **options)
    variables, *place = json.loads(done.stdout)
    assert variables == environment
    assert place == [str(tmp_path), [program["script"], "first"], sys.executable, given]
    assert (done.returncode, done.stderr) == (3, "why\n")


def test_a_shell_finds_it_on_its_path(server: ForkServer, tmp_path: Path) -> None:
    script = tmp_path / "told"
    script.write_text(PLACE)
    folder = server.program(script).parent
    done = subprocess.run(
        ["sh", "-c", "told -m 'a word'"],
        input="given",
        env={"PATH": f"{folder}:{os.environ['PATH']}"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    _, *place = json.loads(done.stdout)
    assert place == [str(tmp_path), [str(script), "-m", "a word"], sys.executable, "given"]
    assert (done.returncode, done.stderr) == (3, "why\n")


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("", 0),
        ("import os; os._exit(7)", 7),
        ("1 / 0", 1),
        ("import os; os.kill(os.getpid(), 9)", -9),
    ],
)
def test_its_end_is_told(start: Start, code: str, status: int) -> None:
    fork = start(code)
    assert fork.wait(60) == status
    assert fork.poll() == status


def test_it_gets_signals_and_is_waited_for(start: Start, tmp_path: Path) -> None:
    fork = start(WAITS, session=True)
    wait_until((tmp_path / "fork").exists)
    assert fork.pid == int((tmp_path / "fork").read_text())
    assert os.getsid(fork.pid) == os.getpgid(fork.pid) == fork.pid
    assert fork.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        fork.wait(0.01)
    fork.terminate()
    assert fork.wait(60) == 5
    fork.kill()


def test_it_outlives_the_fork_server(start: Start, server: ForkServer, tmp_path: Path) -> None:
    fork = start(WAITS)
    wait_until((tmp_path / "fork").exists)
    server.stop()
    assert psutil.Process(fork.pid).status() != psutil.STATUS_ZOMBIE


def test_a_program_that_takes_too_long_is_killed(server: ForkServer, tmp_path: Path) -> None:
    options: dict[str, Any] = {"environment": os.environ, "folder": tmp_path, "timeout": 5}
    # Its first program waits for it to start.
    run(server.address, _script(tmp_path, ""), given="", **{**options, "timeout": 60})
    with pytest.raises(subprocess.TimeoutExpired):
        run(server.address, _script(tmp_path, WAITS), given="", **options)
    pid = int((tmp_path / "fork").read_text())
    wait_until(lambda: not psutil.pid_exists(pid))


@pytest.mark.parametrize(
    "arguments", [("--version",), (), ("jobs", "--help"), ("jobs", "list"), ("jobs", "lisst")]
)
def test_a_command_says_what_a_cold_one_says(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    environment = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}
    environment |= {k: v for k, v in os.environ.items() if k.startswith(("PYTHON", "L"))}
    options: dict[str, Any] = {"given": "", "environment": environment, "folder": tmp_path}
    forked = warm.command(*arguments, timeout=60, **options)
    cold = warm.command(*arguments, timeout=60, cold=True, **options)
    assert forked == cold or vars(forked) | {"args": ()} == vars(cold) | {"args": ()}


def test_what_an_interpreter_reads_at_its_start_makes_it_cold(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('read at the start')")
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    done = warm.command("--version", given="", environment=environment, folder=tmp_path, timeout=60)
    assert done.stdout.startswith("read at the start\n")


def test_what_is_forked_has_one_thread_and_no_connection(tmp_path: Path) -> None:
    with running(make_single(tmp_path / "data", {"agent": {"enabled": False}})) as server:
        forks = psutil.Process(warm.FORKS.pid)
        assert forks.num_threads() == 1
        assert not forks.net_connections("inet")
        for process in server.processes.values():
            assert psutil.Process(process.pid).ppid() == forks.pid
