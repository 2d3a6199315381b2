"""One run of the `windlass` command by a person who has no server yet."""

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
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


# A line about work appears at once instead of after half a second.
_IMPATIENT = """
from windlass.client.display import waiting
waiting.QUIET_SECONDS = 0
from windlass.cli import main
main()
"""


def impatient(
    home: Path, *arguments: str, columns: int = 80, **variables: str
) -> "subprocess.CompletedProcess[str]":
    """Runs the command for a person whose stderr is a terminal, and whose patience ends at once."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    with subprocess.Popen(
        ["timeout", "180", sys.executable, "-c", _IMPATIENT, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=theirs,
        env={**environment(home, **variables), "TERM": "xterm"},
        cwd=home,
        start_new_session=True,
    ) as process:
        os.close(theirs)
        drawn = bytearray()
        # Linux reports the closing of the other end as an error.
        with suppress(OSError):
            while piece := os.read(ours, 65536):
                drawn += piece
        assert process.stdout is not None
        said = process.stdout.read()
    os.close(ours)
    code = process.returncode
    return subprocess.CompletedProcess(arguments, code, said.decode(), drawn.decode())
