"""Confinement of engines, runners and trainers: what they can see and use of the machine.

The walls are those that the agent and the runner build; within runs a program that looks around,
in the place of torch, which would look only where a model leads it.
"""

import asyncio
import json
import os
import pwd
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.confinement.looking import found
from tests.integration.confinement.starting import started
from tests.support.waiting import until

from windlass.confinement import (
    Confinement,
    NoConfinement,
    Walls,
    WorkloadLimits,
    accounts,
    cgroups,
    confinement,
    innermost,
    making,
    python_paths,
)
from windlass.confinement.environment import child_environment
from windlass.sandbox import NoSandbox, make_sandbox
from windlass_agent.engines.builtin_engine import BuiltinEngine
from windlass_agent.engines.port import EngineSpec
from windlass_agent.engines.shelf import Shelf
from windlass_agent.executors.process.allotment import Allotment
from windlass_agent.executors.process.engines.engine_process import EngineFiles, EngineProcess
from windlass_agent.runner.supervisor.trainer import TrainerProcess, environment

TESTS = Path(__file__).parents[3]
# Prints what it found as one line of JSON.
LOOK = """
import json, os, socket, sys
def attempt(do):
    try: return str(do())[:200]
    except Exception as error: return type(error).__name__
def reads(path): return attempt(lambda: open(path, "rb").read())
paths = json.loads(sys.argv[1])
found = {
    "read": {path: reads(path) for path in paths["read"]},
    "written": {path: attempt(lambda: open(path, "ab").write(b"x")) for path in paths["write"]},
    "environ": sorted(os.environ), "uid": os.getuid(), "root": sorted(os.listdir("/")),
    "processes": sorted(int(name) for name in os.listdir("/proc") if name.isdigit()),
    "first": reads("/proc/1/environ"),
    "network": attempt(lambda: socket.create_connection(("127.0.0.1", paths["port"])) and "open"),
    "trace": __import__("ctypes").CDLL(None).ptrace(16, os.getppid(), 0, 0),
    "spaces": __import__("ctypes").CDLL(None).unshare(0x10000000),
}
print("FOUND", json.dumps(found), flush=True)
"""


@pytest.fixture
def secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """The files that the findings' model read, where an installation has them."""
    monkeypatch.setenv("WINDLASS_AUTH__SECRETS_KEY", "a secret of the server's")
    tmp_path.chmod(0o700)
    files = {
        "owner key": tmp_path / "owner.key",
        "credential": tmp_path / "agent" / "credential",
        "another model": tmp_path / "agent" / "models" / "mv-other" / "config.json",
        "another job": tmp_path / "agent" / "workloads" / "job-2-1" / "spool.jsonl",
    }
    for path in files.values():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("a secret")
    return files


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as made:
        yield made


def looking(secrets: dict[str, Path], port: int, *, read: Path, write: Path) -> str:
    paths = [*map(str, secrets.values()), "/etc/shadow", "/etc/passwd", str(read)]
    return json.dumps({"read": paths, "write": [str(write), str(read)], "port": port})


def sees_nothing(said: dict[str, Any], *, read: Path, write: Path) -> None:
    """Its own folders, an environment of named values, no process of others, and no way out."""
    assert said["read"].pop(str(read)) == "b'its own'"
    assert set(said["read"].values()) == {"FileNotFoundError"}
    assert said["written"][str(write)] == "1"
    assert said["written"][str(read)] in ("OSError", "PermissionError")
    assert not [name for name in said["environ"] if name.startswith(("WINDLASS_AUTH", "AWS"))]
    assert "secret" not in said["first"]
    assert len(said["processes"]) <= 3, "those within alone"
    assert (said["trace"], said["spaces"]) == (-1, -1)
    if os.geteuid() == 0:
        named = {entry.pw_uid for entry in pwd.getpwall()}
        assert said["uid"] not in named, "of root, of the database, of anybody who has files"


class Looking(BuiltinEngine):
    """An engine that looks around instead of serving."""

    paths = ""

    def command(self, spec: EngineSpec) -> list[str]:
        return [sys.executable, "-P", "-c", LOOK, type(self).paths, spec.endpoint]


async def test_an_engine_sees_its_model_and_nothing_else(
    walled: Confinement, secrets: dict[str, Path], tmp_path: Path, listener: socket.socket
) -> None:
    model = tmp_path / "agent" / "models" / "mv-own"
    model.mkdir(mode=0o700)
    (model / "config.json").write_text("its own")
    (model / "config.json").chmod(0o600)
    engines = tmp_path / "agent" / "engines"
    engines.mkdir()
    files = EngineFiles(
        record=engines / "eng-walled.json",
        log=engines / "eng-walled.log",
        socket=tmp_path / "s" / "e-1" / "s",
        adapters=engines / "eng-walled.adapters",
        weights=engines / "eng-walled.weights",
    )
    files.socket.parent.parent.mkdir(mode=0o700)
    written = files.socket.parent / "x"
    Looking.paths = looking(
        secrets, listener.getsockname()[1], read=model / "config.json", write=written
    )
    process = EngineProcess.start(
        Looking(),
        EngineSpec(model_dir=model, served_name="m", endpoint=f"unix://{files.socket}"),
        files=files,
        workload=b"",
        allotment=Allotment(),
        confinement=walled,
    )
    async with asyncio.timeout(60):
        await until(process.ended)
    said = found(files.log)
    sees_nothing(said, read=model / "config.json", write=written)
    assert said["network"] != "open"
    assert not process.refused(), process.last_words()


def test_an_adapter_that_comes_later_is_seen(walled: Confinement, tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    shelf, cached = tmp_path / "eng-walled.adapters", tmp_path / "mv-later"
    for folder in (shelf, cached):
        folder.mkdir(mode=0o700)
    (cached / "adapter_config.json").write_text("{}")
    (cached / "adapter_config.json").chmod(0o600)
    walled.show(shelf)
    code = "import sys; sys.stdin.read(1); print(open(sys.argv[1]).read())"
    wanted = shelf / "mv-later" / "adapter_config.json"
    with started(walled, code, str(wanted), readable=(shelf,)) as process:
        assert Shelf(shelf, walled).put(cached) == wanted.parent
        said, _ = process.communicate("x", timeout=60)
    assert said == "{}\n"


def test_sigterm_reaches_the_command_and_its_code_comes_back(walled: Confinement) -> None:
    code = (
        "import signal, sys\nsignal.signal(15, lambda *_: sys.exit(7))\nprint('on', flush=True)\n"
    )
    with started(walled, code + "signal.pause()") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "on\n"
        os.kill(innermost(process.pid), signal.SIGTERM)
        assert process.wait(60) == 7


async def test_a_trainer_sees_its_inputs_and_no_network(
    walled: Confinement, secrets: dict[str, Path], tmp_path: Path, listener: socket.socket
) -> None:
    """A trainer's walls within a runner's, as the agent starts the one and the runner the other."""
    workdir = tmp_path / "agent" / "workloads" / "job-1-1"
    for name in ("inputs", "output", "empty"):
        (workdir / name).mkdir(parents=True)
    own, output = workdir / "inputs" / "config.json", workdir / "output" / "x"
    own.write_text("its own")
    (workdir / "spool.jsonl").write_text("a secret")
    log = workdir / "log"
    log.touch()
    walled.give("job-1-1", workdir)
    paths = looking(
        {**secrets, "spool": workdir / "spool.jsonl"},
        listener.getsockname()[1],
        read=own,
        write=output,
    )
    task = {"workdir": str(workdir), "look": LOOK, "paths": paths, "tests": str(TESTS)}
    walls = Walls(
        readable=(*python_paths(), TESTS),
        writable=(workdir,),
        folder=workdir,
        network=True,
        nests=True,
    )
    command = [sys.executable, "-c", RUNNER, json.dumps(task)]
    limits = WorkloadLimits(memory=2**31)
    with walled.launch(command, walls, name="job-1-1", limits=limits) as launch:
        runner = await asyncio.create_subprocess_exec(
            *launch.command,
            pass_fds=launch.descriptors,
            env=child_environment(confined=True),
            cwd="/",
            stdout=subprocess.PIPE,
        )
    said, _ = await asyncio.wait_for(runner.communicate(), 60)
    walled.forget("job-1-1")
    assert runner.returncode == 0
    assert b"runner reaches open" in said, "its object store, by the machine's network"
    trained = found(log)
    sees_nothing(trained, read=own, write=output)
    assert trained["network"] != "open"


# Starts the trainer as runner.training does.
RUNNER = """
import asyncio, json, socket, sys
from pathlib import Path
sys.path.append(json.loads(sys.argv[1])["tests"])
from tests.integration.confinement.test_confinement import train
task = json.loads(sys.argv[1])
port = json.loads(task["paths"])["port"]
print("runner reaches", socket.create_connection(("127.0.0.1", port), 2) and "open", flush=True)
asyncio.run(train(Path(task["workdir"]), task["look"], task["paths"]))
"""


async def train(workdir: Path, look: str, paths: str) -> None:
    """Trains as a runner does, within its own walls."""
    trainer = await TrainerProcess.start(
        [sys.executable, "-P", "-c", look, paths],
        env=environment(os.environ, workdir, workdir / "trainer.jsonl"),
        walls=Walls(
            readable=(*python_paths(), workdir / "inputs"),
            writable=(workdir / "output", workdir / "empty"),
            folder=workdir / "empty",
            tied=True,
        ),
        log=workdir / "log",
        confinement=confinement("required", nested=True),
    )
    assert await trainer.exited == 0, (workdir / "log").read_text()


def test_a_trial_that_was_killed_leaves_no_control_group(walled: Confinement) -> None:
    """The next process that tries drops it."""
    killed = (
        "import os\nfrom windlass.confinement import making\n"
        "making._try = lambda *_: os.kill(os.getpid(), 9)\nmaking.walled()"
    )
    process = subprocess.Popen([sys.executable, "-c", killed])
    assert process.wait(timeout=60) == -signal.SIGKILL
    making.walled.__wrapped__()
    assert not [path for path in cgroups.Group(f"trial-{process.pid}").folders if path.exists()]


@pytest.mark.skipif(os.geteuid() != 0, reason="another user has no ids to give")
def test_without_a_place_for_user_ids_there_is_no_confinement(
    walled: Confinement, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "run").write_text("a file")
    monkeypatch.setattr(accounts, "_HELD", tmp_path / "run" / "ids")
    with pytest.raises(NoConfinement, match="Not a directory"):
        making.walled.__wrapped__()
    with pytest.raises(NoSandbox, match="Not a directory"):
        make_sandbox()


def test_processes_that_start_at_once_find_that_walls_can_be_built(walled: Confinement) -> None:
    code = (
        "from windlass.confinement.making import walled\nfor _ in range(20): walled.__wrapped__()"
    )
    tries = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(4)]
    assert [each.wait(timeout=120) for each in tries] == [0] * 4
