"""`windlass serve` at a terminal, and `make demo` beside a server that is up."""

import os
import pty
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.support.environments.postgres import reachable_folder
from tests.support.processes.command import environment, windlass
from tests.support.processes.shell import PROGRAM
from tests.support.processes.windlass import NO_SPARE, Windlass, make_single, running

from windlass.demo.server import running_url


@pytest.fixture
def server() -> Iterator[Windlass]:
    with reachable_folder() as folder:
        yield make_single(folder / "my data", NO_SPARE)


def test_it_says_where_it_answers_and_what_comes_next(server: Windlass) -> None:
    terminal, end = pty.openpty()
    process = subprocess.Popen(
        [*PROGRAM, "serve", "--config", str(server.configs["all"])],
        stdout=end,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        os.close(end)
        said = ""
        while "windlass models list" not in said:
            said += os.read(terminal, 4096).decode()
        key = server.data / "owner.key"
        assert f"Windlass answers at {server.url}." in said
        assert f"windlass auth login --base-url {server.url} < '{key}'" in said
        page = httpx.get(server.url)
        assert (page.status_code, "/v1" in page.text) == (200, True)
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
        os.close(terminal)


def test_a_port_in_use_is_told_before_anything_is_started(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = windlass(tmp_path, "serve", "--data", "data", "--port", str(port))
    assert done.returncode == 2
    assert f"Port {port} of 127.0.0.1 is in use. Choose another one with --port." in done.stderr
    assert not (tmp_path / "data").exists()


def test_a_demo_finds_the_server_that_is_up(server: Windlass) -> None:
    with running(server, divisible=False):
        assert running_url(server.data) == server.url
    assert running_url(server.data) == ""


def test_a_demo_of_a_file_that_is_not_there_says_so(tmp_path: Path) -> None:
    # Of an earlier run, and none of this one's business.
    log = tmp_path / "data" / "demo" / "server" / "serve.log"
    log.parent.mkdir(parents=True)
    log.touch()
    command = [sys.executable, "-m", "windlass.demo", "--data", "none [b].jsonl"]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment(tmp_path), capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout == "none [b].jsonl cannot be read: No such file or directory.\n"
