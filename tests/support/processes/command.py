"""One run of the `windlass` command by a person who has no server yet."""

import os
import subprocess
from pathlib import Path

from tests.support.processes.shell import PROGRAM


def environment(home: Path, **variables: str) -> dict[str, str]:
    """This process's variables but ours, with a home of its own."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("WINDLASS", "OPENAI"))}
    return {**kept, "XDG_CONFIG_HOME": str(home), "HOME": str(home), **variables}


def windlass(
    home: Path, *arguments: str, given: str = "", **variables: str
) -> "subprocess.CompletedProcess[str]":
    """Runs the command to its end in `home`, and checks that it shows no traceback."""
    done = subprocess.run(
        [*PROGRAM, *arguments],
        input=given,
        env=environment(home, **variables),
        cwd=home,
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert "Traceback" not in done.stdout + done.stderr
    assert "Internal error" not in done.stderr
    return done
