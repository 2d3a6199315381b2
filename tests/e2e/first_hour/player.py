"""A newcomer who pastes the page's commands, one after the other."""

import json
import os
import pty
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx
from tests.e2e.first_hour import terminal
from tests.e2e.first_hour.page import ASSIGNMENT, SERVE
from tests.e2e.first_hour.terminal import Printed
from tests.support.processes.windlass import free_port
from tests.support.waiting import wait_until

from windlass.demo.questions import split

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "getting-started.md"
ADDRESS = "127.0.0.1:8080"
START_SECONDS, STOP_SECONDS = 120, 60


@dataclass
class Newcomer:
    """Plays a page in a folder of its own; `account` is the user's uid, None is ours."""

    folder: Path
    columns: int | None
    account: int | None = None
    port: int = field(default_factory=free_port)
    variables: dict[str, str] = field(default_factory=dict)
    greeting: str = ""

    @property
    def environment(self) -> dict[str, str]:
        """A user's own: nothing of Windlass or OpenAI, and the programs of this environment."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("WINDLASS", "OPENAI", "PYTEST", "COV_"))
        }
        path = f"{Path(sys.executable).parent}:{kept.get('PATH', '')}"
        ours = {"PATH": path, "HOME": str(self.folder), "WINDLASS_HTTP__PORT": str(self.port)}
        return {**kept, **ours, "HF_HUB_OFFLINE": "1", **self.variables}

    def play(self, command: str, *, columns: int | None = None) -> Printed:
        """What a command prints; an assignment prints nothing and is remembered."""
        if command == SERVE:
            said = self.greeting.replace(f"127.0.0.1:{self.port}", ADDRESS).strip()
            return Printed(tuple(said.splitlines()), 0)
        if found := ASSIGNMENT.fullmatch(command):
            name, value = found.groups()
            done = self._run(f"printf %s {value}", columns=None)
            self.variables[name] = "".join(done.lines)
            return Printed((), done.code)
        return self._run(command, columns=columns or self.columns)

    def play_apart(self, command: str, columns: int) -> tuple[Printed, tuple[str, ...]]:
        """What a command prints on a terminal of that width: data, and prose; no line is broken."""
        return terminal.run_apart(
            self._line(command),
            columns=columns,
            folder=self.folder,
            environment=self.environment,
        )

    def _line(self, command: str) -> str:
        return self._as_account(command.replace(ADDRESS, f"127.0.0.1:{self.port}"))

    def _run(self, command: str, *, columns: int | None) -> Printed:
        printed = terminal.run(
            self._line(command),
            columns=columns,
            folder=self.folder,
            environment=self.environment,
        )
        return Printed(
            tuple(line.replace(f"127.0.0.1:{self.port}", ADDRESS) for line in printed.lines),
            printed.code,
        )

    def _as_account(self, command: str) -> str:
        """The command as that user's, who may read what the interpreter needs wherever it lies."""
        if self.account is None:
            return command
        may_read = "--inh-caps=-all,+dac_read_search --ambient-caps=-all,+dac_read_search"
        return (
            f"setpriv --reuid={self.account} --regid={self.account} --clear-groups {may_read} "
            f"bash -c {shlex.quote(command)}"
        )

    @contextmanager
    def server(self) -> Iterator[None]:
        """Runs the page's server for the block, once it is ready, on a terminal of its own."""
        ours, theirs = pty.openpty()
        log = (self.folder / "serve.log").open("ab")
        process = subprocess.Popen(
            ["bash", "-c", f"exec {self._as_account(SERVE)}"],
            stdin=subprocess.DEVNULL,
            stdout=theirs,
            stderr=log,
            cwd=self.folder,
            env=self.environment,
            start_new_session=True,
        )
        os.close(theirs)
        try:
            wait_until(lambda: self._ready(process), "the server", START_SECONDS)
            # It speaks once it is ready, in one piece.
            self.greeting = os.read(ours, 65536).decode()
            yield
        finally:
            process.terminate()
            process.wait(STOP_SECONDS)
            os.close(ours)
            log.close()

    def _ready(self, process: "subprocess.Popen[bytes]") -> bool:
        assert process.poll() is None, (self.folder / "serve.log").read_text()[-3000:]
        with suppress(httpx.TransportError):
            return httpx.get(f"http://127.0.0.1:{self.port}/readyz", timeout=5).is_success
        return False


def prepare(folder: Path, model: Path) -> None:
    """What the page says that a newcomer has: a model's folder and a training file."""
    shutil.copytree(model, folder / "my model")
    rows, _ = split()
    (folder / "train.jsonl").write_text("".join(json.dumps(row.to_row()) + "\n" for row in rows))
