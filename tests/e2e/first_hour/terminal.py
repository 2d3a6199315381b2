"""Commands on a terminal of a chosen width, or on none."""

import fcntl
import os
import pty
import struct
import subprocess
import termios
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pyte

LINES = 400
SECONDS = 240
# A screen on which no line is broken, whatever a command takes for the terminal's width.
UNBROKEN = 1000


@dataclass(frozen=True)
class Printed:
    """What a command left: the lines on the screen, and its exit code."""

    lines: tuple[str, ...]
    code: int


def run(
    command: str, *, columns: int | None, folder: Path, environment: Mapping[str, str]
) -> Printed:
    """Runs a command in bash; `columns` is the terminal's width, None is no terminal."""
    if columns is None:
        return _without_terminal(command, folder, environment)
    ours, theirs = _pair(columns)
    with _started(command, (theirs, theirs), columns, folder, environment) as process:
        os.close(theirs)
        lines = _read(ours, columns)
    return Printed(lines, process.returncode)


def run_apart(
    command: str, *, columns: int, folder: Path, environment: Mapping[str, str]
) -> tuple[Printed, tuple[str, ...]]:
    """Runs a command with a terminal each for data and prose; what it wrote, no line broken."""
    (out, their_out), (err, their_err) = _pair(columns), _pair(columns)
    with (
        _started(command, (their_out, their_err), columns, folder, environment) as process,
        ThreadPoolExecutor() as readers,
    ):
        os.close(their_out)
        os.close(their_err)
        data, prose = readers.map(_read, (out, err), (UNBROKEN, UNBROKEN))
    return Printed(data, process.returncode), prose


def _pair(columns: int) -> tuple[int, int]:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, columns, 0, 0))
    return ours, theirs


def _started(
    command: str,
    ends: tuple[int, int],
    columns: int,
    folder: Path,
    environment: Mapping[str, str],
) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        ["timeout", str(SECONDS), "bash", "-c", command],
        stdin=ends[0],
        stdout=ends[0],
        stderr=ends[1],
        cwd=folder,
        env={**environment, "TERM": "xterm", "COLUMNS": str(columns)},
        start_new_session=True,
    )


def _read(ours: int, columns: int) -> tuple[str, ...]:
    """What is left on a screen of that width once nobody writes on it."""
    screen = pyte.Screen(columns, LINES)
    stream = pyte.ByteStream(screen)
    # Linux reports the closing of the other end as an error.
    with suppress(OSError):
        while piece := os.read(ours, 65536):
            stream.feed(piece)
    os.close(ours)
    return _left(screen.display)


def _without_terminal(command: str, folder: Path, environment: Mapping[str, str]) -> Printed:
    done = subprocess.run(
        ["timeout", str(SECONDS), "bash", "-c", command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=folder,
        env=dict(environment),
    )
    return Printed(_left(done.stdout.splitlines()), done.returncode)


def _left(lines: list[str]) -> tuple[str, ...]:
    """The lines without blank ones at the end and spaces at theirs."""
    kept = [line.rstrip() for line in lines]
    while kept and not kept[-1]:
        kept.pop()
    return tuple(kept)
