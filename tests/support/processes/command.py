"""One run of the `windlass` command by a person who has no server yet."""

import fcntl
import os
import pty
import struct
import subprocess
import tempfile
import termios
import threading
from contextlib import suppress
from pathlib import Path

from tests.support.processes import warm


def environment(home: Path, **variables: str) -> dict[str, str]:
    """This process's variables but ours, with a home of its own."""
    # xdist's workers carry the width of a terminal that their commands do not have.
    left = ("WINDLASS", "OPENAI", "COLUMNS", "LINES")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(left)}
    return {**kept, "XDG_CONFIG_HOME": str(home), "HOME": str(home), **variables}


def windlass(
    home: Path, *arguments: str, given: str = "", **variables: str
) -> "subprocess.CompletedProcess[str]":
    """Runs the command to its end in `home`, and checks that it shows no traceback."""
    done = warm.command(
        *arguments,
        given=given,
        environment=environment(home, **variables),
        folder=home,
        timeout=180,
    )
    assert "Traceback" not in done.stdout + done.stderr
    assert "Internal error" not in done.stderr
    return done


_IMPATIENT = Path(__file__).with_name("impatient.py")
_SECONDS = 180


def impatient(
    home: Path, *arguments: str, columns: int = 80, **variables: str
) -> "subprocess.CompletedProcess[str]":
    """Runs the command for a person whose stderr is a terminal, and whose patience ends at once."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    with tempfile.TemporaryFile() as said:
        process = warm.drawing(
            _IMPATIENT,
            *arguments,
            output=said.fileno(),
            terminal=theirs,
            environment={**environment(home, **variables), "TERM": "xterm"},
            folder=home,
        )
        os.close(theirs)
        drawn = bytearray()
        killer = threading.Timer(_SECONDS, process.kill)
        killer.start()
        # Linux reports the closing of the other end as an error.
        with suppress(OSError):
            while piece := os.read(ours, 65536):
                drawn += piece
        code = process.wait()
        killer.cancel()
        os.close(ours)
        said.seek(0)
        printed = said.read().decode()
    return subprocess.CompletedProcess(arguments, code, printed, drawn.decode())
