"""Trainers without four seconds of imports: forks of one process that has the libraries.

Nothing of the product knows: the runner is given a Python that is a few lines of shell. It starts
what it is told, but for a trainer's entry and torchrun, in whose place it puts a stand-in. The fork
runs the same code on the same arguments, as a spare does. What a test of processes looks at is
another: session, resource limits and control group are those of the fork server.
"""

import os
import shlex
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from windlass_agent.runner.supervisor.trainer import environment

_HERE = Path(__file__).parent
# What starts the processes of one training; each is an entry again.
TORCHRUN = "torch.distributed.run"
_END_SECONDS = 20

_SCRIPT = """#!/bin/sh
exec {python} -IS {stand_in} {socket} {python} {script} "$@"
"""
_PYTHON = """#!/bin/sh
case "$*" in
{patterns}) exec {python} -IS {stand_in} {socket} "$0" "$@" ;;
esac
exec {python} "$@"
"""


def trainers_environment() -> dict[str, str]:
    """Returns the environment of a trainer somewhere."""
    made = environment(os.environ, Path(".."), Path("../trainer.jsonl"))
    return made | {"OMP_NUM_THREADS": "1"}


class ForkServer:
    """A fork server of one interpreter, started with its first use.

    `programs` are the modules that run in forks; `imported` are those that they import later.
    `environment` is that of the imports, by default a trainer's.
    """

    def __init__(
        self,
        python: Path,
        programs: Sequence[str],
        imported: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._interpreter = python
        self._programs = programs
        self._imported = imported
        self._environment = environment
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def python(self) -> Path:
        """Returns the Python whose trainers are forks."""
        if sys.platform != "linux":
            return self._interpreter
        self._started()
        return self._folder / "python"

    @property
    def address(self) -> Path:
        """Returns the socket that takes requests."""
        self._started()
        return self._folder / "server"

    @property
    def pid(self) -> int:
        """Returns the process of the server; 0 before its first use."""
        return self._process.pid if self._process else 0

    def program(self, script: Path) -> Path:
        """Returns a program of the script's name, in a folder of its own, whose runs are forks."""
        self._started()
        program = self._folder / "bin" / script.name
        with self._lock:
            if not program.exists():
                program.parent.mkdir(exist_ok=True)
                self._write(program, _SCRIPT, self._folder / "server", script=str(script))
        return program

    def stop(self) -> None:
        """Ends the server and all of its trainers."""
        if self._process is None:
            return
        try:
            self._process.communicate(timeout=_END_SECONDS)
        finally:
            self._process.kill()
        self._temporary.cleanup()

    def _started(self) -> None:
        with self._lock:
            if self._process is None:
                self._start()

    def _start(self) -> None:
        self._temporary = tempfile.TemporaryDirectory(prefix="windlass-forks-")
        self._folder = Path(self._temporary.name)
        # Short, as the address of a socket has to be.
        address = self._folder / "server"
        self._write_python(address)
        empty = self._folder / "empty"
        empty.mkdir()
        with socket.socket(socket.AF_UNIX) as listener, (self._folder / "log").open("wb") as log:
            listener.bind(str(address))
            # Whoever comes before the imports are done waits.
            listener.listen(64)
            self._process = subprocess.Popen(
                [
                    *(self._interpreter, "-P", _HERE / "server.py", str(listener.fileno())),
                    *(*self._programs, *self._imported),
                ],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                pass_fds=[listener.fileno()],
                cwd=empty,
                # Libraries keep paths of their environment: these are a trainer's own wherever
                # it runs, since it does so beside them.
                env=self._environment or trainers_environment(),
            )

    def _write_python(self, address: Path) -> None:
        flags = ("-m", "-u -m")
        patterns = (f'"{flag} {name} "*' for flag in flags for name in self._programs)
        self._write(self._folder / "python", _PYTHON, address, patterns=" | ".join(patterns))

    def _write(
        self, program: Path, form: str, address: Path, *, patterns: str = "", script: str = ""
    ) -> None:
        program.write_text(
            form.format(
                patterns=patterns,
                python=shlex.quote(str(self._interpreter)),
                stand_in=shlex.quote(str(_HERE / "stand_in.py")),
                socket=shlex.quote(str(address)),
                script=shlex.quote(script),
            )
        )
        program.chmod(0o755)
