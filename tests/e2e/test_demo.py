"""`make demo` as a newcomer has it: read from a pipe, pasted on, interrupted, and left alone."""

import fcntl
import json
import os
import pty
import re
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from tests.support.environments import made_once, postgres
from tests.support.processes.command import environment
from tests.support.processes.shell import PROGRAM
from tests.support.waiting import PATIENCE, Watch, wait_until

from windlass.demo.server import running_url

pytestmark = [pytest.mark.torch, pytest.mark.timeout(900)]

SECONDS = 600
# Of 24: every answer is sampled, and one in seventy is wrong; the worst run that was seen had four.
# The untuned model knows two at most.
ENOUGH = 18
# For a line to get from a pipe into a test.
READING_SECONDS = 0.5
COMMAND = [sys.executable, "-m", "windlass.demo", "--work"]


@dataclass(frozen=True)
class Told:
    """The lines of a whole run, each with the second in which it was read."""

    lines: tuple[tuple[float, str], ...]
    code: int

    @property
    def text(self) -> str:
        return "\n".join(line for _, line in self.lines)

    @property
    def closing(self) -> list[str]:
        """What comes after the blank line."""
        said = [line for _, line in self.lines]
        return said[said.index("") + 1 :]


@pytest.fixture(scope="module")
def work() -> Iterator[Path]:
    """A work folder whose name a shell would take apart, with the base model in it."""
    with postgres.reachable_folder() as folder:
        path = folder / "it's my demo"
        shutil.copytree(made_once.tiny_model(), path / "base")
        yield path
        postgres.remove_database(path / "server")


@pytest.fixture(scope="module")
def told(work: Path) -> Told:
    """One run from beginning to end, without a terminal."""
    lines = []
    with subprocess.Popen(
        ["timeout", str(SECONDS), *COMMAND, str(work)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=_environment(work),
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append((time.monotonic(), line.decode().removesuffix("\n")))
    return Told(tuple(lines), process.returncode)


def test_it_learns_what_it_did_not_know_and_says_how_long_it_took(told: Told, work: Path) -> None:
    assert told.code == 0, told.text
    result = re.fullmatch(
        r"(\d+) of 24 right before, (\d+) after, in (\d+) s \(\d+ s of them the [\w-]+ job\)\.",
        told.closing[0],
    )
    assert result, told.text
    before, after, seconds = map(int, result.groups())
    assert before <= 2
    assert after >= ENOUGH
    assert seconds == round(json.loads((work / "summary.json").read_text())["seconds"]["total"])


def test_nothing_foreign_is_printed(told: Told) -> None:
    for foreign in ("Traceback", "\r", "\x1b", "it/s", "Loading weights", "Warning"):
        assert foreign not in told.text


def test_a_second_has_one_line_until_the_result_is_told_at_once(told: Told) -> None:
    times = [at for at, _ in told.lines[: -len(told.closing)]]
    assert len(times) > 8
    for index, began in enumerate(times):
        for count, at in enumerate(times[index:]):
            assert count <= at - began + READING_SECONDS, told.lines


def test_its_commands_are_pasted_twice_beside_its_server(told: Told, work: Path) -> None:
    serve, *others = [line for line in told.closing if line.startswith(shlex.join(PROGRAM))]
    questions = json.loads((work / "summary.json").read_text())["questions"]
    (expected,) = (one["expected"] for one in questions if one["question"] in others[1])
    assert len(others) == 2
    answers = []
    with _server(serve, work):
        for _ in range(2):
            pasted = subprocess.run(
                ["timeout", str(SECONDS), "bash", "-e"],
                input="\n".join(others),
                env=_environment(work),
                capture_output=True,
                text=True,
            )
            assert (pasted.returncode, pasted.stderr) == (0, ""), pasted
            assert "succeeded" in pasted.stdout
            answers.append(pasted.stdout.splitlines()[-1])
    assert expected in answers


@pytest.mark.long
def test_a_changed_base_model_is_asked_until_ctrl_c(told: Told, work: Path) -> None:
    """As after an upgrade; the folder's `tiny-llama` is the base of what was fine-tuned."""
    (work / "base" / "README.md").write_text("another one")
    with _on_terminal(work) as demo:
        demo.read_until(r"asking tiny-llama-[0-9a-f]{8}")
        processes = demo.processes()
        assert len(processes) > 2
        os.write(demo.terminal, b"\x03\x03")
        demo.read_until("Stopped.")
        demo.read_to_end()
        assert demo.process.wait(PATIENCE) == 130
    assert "Traceback" not in demo.said
    assert demo.longest_silence < 1
    _all_end(processes, work)


@pytest.mark.long
def test_nothing_outlives_its_terminal(told: Told, work: Path) -> None:
    with _on_terminal(work) as demo:
        demo.read_until("asking tiny-llama")
        processes = demo.processes()
        os.close(demo.terminal)
        # What is written to the closed terminal may fail before the signal comes.
        assert demo.process.wait(PATIENCE) in (1, 130)
    _all_end(processes, work)


class Demo:
    """A demo on a terminal, whose silences are measured."""

    def __init__(self, process: "subprocess.Popen[bytes]", terminal: int) -> None:
        self.process = process
        self.terminal = terminal
        self.said = ""
        self.longest_silence = 0.0

    def read_until(self, pattern: str) -> None:
        """Reads on until what was said matches."""
        while not re.search(pattern, self.said):
            assert self._read(), f"it ended early: {self.said}"

    def read_to_end(self) -> None:
        """Reads what is left."""
        while self._read():
            pass

    def processes(self) -> list[psutil.Process]:
        """The demo and all below it."""
        demo = psutil.Process(self.process.pid)
        return [demo, *demo.children(recursive=True)]

    def _read(self) -> bool:
        watch = Watch()
        # Linux reports the closing of the other end as an error.
        with suppress(OSError):
            if piece := os.read(self.terminal, 65536):
                self.said += piece.decode(errors="replace")
                self.longest_silence = max(self.longest_silence, watch.seconds())
                return True
        return False


@contextmanager
def _on_terminal(work: Path) -> Iterator[Demo]:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    process = subprocess.Popen(
        [*COMMAND, str(work)],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=_environment(work) | {"TERM": "xterm"},
        start_new_session=True,
        preexec_fn=_take_terminal,
    )
    os.close(theirs)
    try:
        yield Demo(process, ours)
    finally:
        process.kill()
        process.wait()
        with suppress(OSError):
            os.close(ours)


def _take_terminal() -> None:
    """Makes a session's terminal of stdin, so that Ctrl-C and hanging up reach it."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


@contextmanager
def _server(serve: str, work: Path) -> Iterator[None]:
    """The pasted server, in a terminal of its own."""
    process = subprocess.Popen(
        ["bash", "-c", f"exec {serve}"],
        env=_environment(work),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        wait_until(lambda: process.poll() is not None or running_url(work / "server"), "the server")
        assert process.poll() is None
        yield
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 0


def _all_end(processes: list[psutil.Process], work: Path) -> None:
    """Waits until none of these runs, and none that names the work folder."""

    def left() -> list[str]:
        named = [one for one in psutil.process_iter() if _names(one, work)]
        return [str(one) for one in {*named, *processes} if one.is_running() and not _is_dead(one)]

    wait_until(lambda: not left(), "no process", 60)


def _names(process: psutil.Process, work: Path) -> bool:
    with suppress(psutil.Error):
        return str(work) in " ".join(process.cmdline())
    return False


def _is_dead(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return process.status() == psutil.STATUS_ZOMBIE
    return True


def _environment(work: Path) -> dict[str, str]:
    return environment(work.parent, HF_HUB_OFFLINE="1")
