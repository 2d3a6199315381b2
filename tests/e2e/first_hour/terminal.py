"""Commands on a terminal of a chosen width, or on none."""

import fcntl
import os
import pty
import struct
import subprocess
import termios
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pyte

LINES = 400
SECONDS = 240


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
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, columns, 0, 0))
    with subprocess.Popen(
        ["timeout", str(SECONDS), "bash", "-c", command],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=folder,
        env={**environment, "TERM": "xterm", "COLUMNS": str(columns)},
        start_new_session=True,
    ) as process:
        os.close(theirs)
        screen = pyte.Screen(columns, LINES)
        stream = pyte.ByteStream(screen)
        # Linux reports the closing of the other end as an error.
        with suppress(OSError):
            while piece := os.read(ours, 65536):
                stream.feed(piece)
    os.close(ours)
    return Printed(_left(screen.display), process.returncode)


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
