"""A forked trainer is to whoever started it what a process of its own is."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.support.environments import required
from tests.support.processes.forked import ForkServer
from tests.support.waiting import wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks are Linux's")
Start = Callable[..., "subprocess.Popen[bytes]"]

# Whatever is said, by a module that needs no time to import.
PROGRAM = "timeit"
PLACE = """
import json, os, sys
print(json.dumps([
    dict(os.environ), os.getcwd(), sys.argv[0], sys.executable, sys.stdin.read(), __name__,
]), file=sys.stderr, flush=True)
os._exit(0)
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
    made = ForkServer(Path(sys.executable), [PROGRAM])
    yield made
    made.stop()


@pytest.fixture
def start(server: ForkServer, tmp_path: Path) -> Iterator[Start]:
    """Starts the program of a code."""
    started: list[subprocess.Popen[bytes]] = []

    def start(code: str, **options: Any) -> "subprocess.Popen[bytes]":
        command: list[str | Path] = [server.python, "-m", PROGRAM, "-n1", "-r1", code]
        started.append(subprocess.Popen(command, cwd=tmp_path, **options))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


def forked(folder: Path) -> psutil.Process:
    """The fork of WAITS, once it waits."""
    wait_until((folder / "fork").exists)
    return psutil.Process(int((folder / "fork").read_text()))


def test_it_has_the_place_of_its_stand_in(start: Start, server: ForkServer, tmp_path: Path) -> None:
    environment = {"PATH": os.environ["PATH"], "NAME": "ä value"}
    pipes = dict.fromkeys(("stdin", "stderr"), subprocess.PIPE)
    process = start(PLACE, env=environment, **pipes)
    _, said = process.communicate(b"told", timeout=60)
    variables, *place = json.loads(said)
    assert environment.items() <= variables.items()
    assert "HF_HOME" not in variables
    program = str(Path(os.__file__).with_name(f"{PROGRAM}.py"))
    assert place == [str(tmp_path), program, str(server.python), "told", "__main__"]
    assert process.returncode == 0


@pytest.mark.parametrize(
    ("code", "status"),
    [("import os; os._exit(7)", 7), ("1 / 0", 1), ("import os; os.kill(os.getpid(), 9)", -9)],
)
def test_its_end_is_the_stand_ins(start: Start, code: str, status: int) -> None:
    assert start(code).wait(60) == status


def test_it_gets_the_signals(start: Start, tmp_path: Path) -> None:
    process = start(WAITS)
    forked(tmp_path)
    process.terminate()
    assert process.wait(60) == 5


def test_killed_a_stand_in_takes_it_along(start: Start, tmp_path: Path) -> None:
    process = start(WAITS)
    fork = forked(tmp_path)
    process.kill()
    fork.wait(60)


def test_nothing_outlives_the_server(start: Start, server: ForkServer, tmp_path: Path) -> None:
    process = start(WAITS)
    fork = forked(tmp_path)
    psutil.Process(server.pid).kill()
    assert process.wait(60) != 0
    fork.wait(60)


def test_whatever_else_is_started_is_started(server: ForkServer) -> None:
    command: list[str | Path] = [server.python, "-c", "import os; print(os.getpid())"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    said, _ = process.communicate(timeout=60)
    assert int(said) == process.pid


SEEN = """
import json, os, sys
status = open("/proc/self/status").read().splitlines()
rights = [line for line in status if line.startswith(("Cap", "Uid", "NoNewPrivs"))]
network = [line.partition(":")[0] for line in open("/proc/net/dev")]
seen = [os.getuid(), os.listdir("/tmp"), network, rights, os.path.exists(PLACE)]
print(json.dumps(seen), file=sys.stderr, flush=True)
os._exit(0)
"""


def test_it_is_within_the_walls_of_its_stand_in(server: ForkServer, tmp_path: Path) -> None:
    if shutil.which("bwrap") is None:
        required.lacking("bubblewrap is not installed")
    walls = (
        *("bwrap", "--ro-bind", "/", "/", "--tmpfs", "/tmp", "--proc", "/proc", "--dev", "/dev"),
        *("--unshare-user", "--unshare-pid", "--unshare-net", "--cap-drop", "ALL"),
    )

    def seen(python: str | Path) -> object:
        code = SEEN.replace("PLACE", repr(str(tmp_path)))
        words = [python, "-m", PROGRAM, "-n1", "-r1", code]
        done = subprocess.run([*walls, *words], capture_output=True, text=True, timeout=60)
        return json.loads(done.stderr.splitlines()[0])

    found = seen(server.python)
    assert found == seen(sys.executable)
    assert isinstance(found, list)
    assert found[1] == []
    assert found[-1] is False
