"""Progress that the command shows, also while the server is away."""

import contextlib
import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest
from tests.support.factories.feather import make_feather
from tests.support.processes.shell import PROGRAM, Shell
from tests.support.processes.windlass import NO_SPARE, Windlass, make_single, running
from tests.support.waiting import wait_until


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Windlass]:
    with running(make_single(tmp_path / "data", {"agent": {"enabled": False}})) as server:
        yield server


def rows(path: Path, count: int = 40) -> str:
    lines = []
    for number in range(count):
        turns = [("user", f"say {number}"), ("assistant", f"the quick {number}")]
        lines.append({"messages": [{"role": role, "content": text} for role, text in turns]})
    path.write_text("\n".join(map(json.dumps, lines)) + "\n")
    return str(path)


@contextlib.contextmanager
def started(shell: Shell, out: int | IO[str], *arguments: str) -> "Iterator[subprocess.Popen[str]]":
    """A command that goes on while the test does."""
    process = subprocess.Popen(
        [*PROGRAM, *arguments],
        env=shell.environment | shell.owner,
        stdout=out,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.faults
def test_a_follower_outlives_the_server(server: Windlass, tmp_path: Path) -> None:
    shell = Shell(server, tmp_path)
    shell.data("models", "import", str(make_feather(tmp_path / "feather")))
    file = rows(tmp_path / "rows.jsonl")
    job = str(shell.object("jobs", "create", "--model", "feather", "--training-file", file)["id"])
    told = tmp_path / "told"
    with (
        told.open("w") as out,
        started(shell, out, "jobs", "events", "-f", job, "-o", "json") as follower,
    ):
        wait_until(told.read_text, "the first event")
        server.kill()
        server.start()
        server.wait_ready()
        shell.data("jobs", "cancel", job, "--yes")
        assert follower.wait(120) == 1, "it was cancelled"
    seen = [json.loads(line)["id"] for line in told.read_text().splitlines()]
    listed = json.loads(shell.data("jobs", "events", job, "--limit", "100", "-o", "json"))
    assert seen == [event["id"] for event in listed], "every event, once and in order"


@pytest.mark.torch
def test_train_and_chat(tmp_path: Path) -> None:
    from tests.support.factories.toy_model import make_model

    with running(make_single(tmp_path / "data", NO_SPARE)) as server:
        shell = Shell(server, tmp_path)
        shell.data("models", "import", str(make_model(tmp_path / "toy")))
        done = shell.run(
            *("jobs", "create", "--model", "toy", "--suffix", "try", "--follow", "-o", "json"),
            *("--training-file", rows(tmp_path / "rows.jsonl"), "--epochs", "1"),
            *("--batch-size", "8"),
        )
        assert done.returncode == 0, done.stderr
        assert "Step 5/5: training loss=" in done.stderr
        assert "\x1b" not in done.stderr
        job = json.loads(done.stdout)
        model = job["fine_tuned_model"]

        shown = shell.on_terminal("jobs", "events", "-f", job["id"][:12])
        assert "5/5" in shown
        assert "tokens/s" in shown
        assert "The job has successfully completed" in shown
        assert shell.data("jobs", "logs", job["id"])
        assert model in shell.data("models", "list", "-o", "name").splitlines()

        asked = ("chat", model, "--max-tokens", "8", "--temperature", "0")
        streamed = shell.run(*asked, given="say 3")
        assert (streamed.returncode, streamed.stderr) == (0, "")
        whole = shell.object(*asked, "say 3")
        assert whole["content"] == streamed.stdout.removesuffix("\n")
        assert "training" in shell.data("usage", "--by", "kind")


def test_a_long_wait_can_be_left(server: Windlass, tmp_path: Path) -> None:
    shell = Shell(server, tmp_path)
    with started(shell, subprocess.PIPE, "jobs", "list", "-w", "--interval", "0.1") as watcher:
        shell.data("models", "import", str(make_feather(tmp_path / "feather")))
        file = rows(tmp_path / "rows.jsonl")
        shell.data("jobs", "create", "--model", "feather", "--training-file", file)
        assert watcher.stdout is not None
        assert "ftjob-" in watcher.stdout.readline()
        watcher.send_signal(signal.SIGINT)
        _, said = watcher.communicate(timeout=60)
        assert (watcher.returncode, said) == (130, "")
