"""The `windlass` command as processes."""

import json
import os
import pty
import subprocess
import threading
from pathlib import Path
from typing import Any

from tests.support.processes import warm
from tests.support.processes.warm import PROGRAM
from tests.support.processes.windlass import Windlass

__all__ = ["PROGRAM", "Shell"]


class Shell:
    """A user's shell with its own home and the server's data folder."""

    def __init__(self, server: Windlass, home: Path):
        self.server = server
        self.home = home
        self.config = home / "windlass" / "config.yaml"
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("WINDLASS", "OPENAI"))}
        self.environment = {**kept, "XDG_CONFIG_HOME": str(home), "HOME": str(home)}

    @property
    def owner(self) -> dict[str, str]:
        return {"WINDLASS_API_KEY": self.server.owner_key, "WINDLASS_BASE_URL": self.server.url}

    def run(
        self,
        *arguments: str,
        given: str = "",
        bare: bool = False,
        environment: dict[str, str] | None = None,
    ) -> "subprocess.CompletedProcess[str]":
        return warm.command(
            *arguments,
            given=given,
            environment=self.environment | ({} if bare else self.owner) | (environment or {}),
            folder=self.home,
            timeout=120,
        )

    def data(self, *arguments: str, given: str = "") -> str:
        done = self.run(*arguments, given=given)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def object(self, *arguments: str, given: str = "") -> dict[str, Any]:
        found = json.loads(self.data(*arguments, "-o", "json", given=given))
        assert isinstance(found, dict)
        return found

    def on_terminal(self, *arguments: str, environment: dict[str, str] | None = None) -> str:
        """Returns the output of a command on a terminal of 80 columns."""
        ours, theirs = pty.openpty()
        done = warm.on_terminal(
            *arguments,
            terminal=theirs,
            environment=self.environment | self.owner | {"TERM": "xterm"} | (environment or {}),
            folder=self.home,
        )
        os.close(theirs)
        text = b""
        killer = threading.Timer(120, done.kill)
        killer.start()
        try:
            while piece := os.read(ours, 4096):
                text += piece
        except OSError:  # how Linux says that the other end is closed
            pass
        finally:
            killer.cancel()
            os.close(ours)
        assert done.wait(60) == 0, text
        return text.decode()
