"""Trainers and engines without seconds of imports: forks of a process that has the libraries.

Nothing of the product knows: agents and runners are given a Python that is a few lines of shell. It
starts what it is told, but for the programs that it has imported, in whose place it puts a
stand-in. The fork runs the same code on the same arguments, as a spare does, within the walls of
its stand-in. What a test of processes looks at is another: the session is that of the fork server,
and the filter of system calls is missing.
"""

import os
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from tests.support.processes.forked.walls import can_join

from windlass_agent.runner.supervisor.trainer import environment

_HERE = Path(__file__).parent
# What starts the processes of one training; each is an entry again.
TORCHRUN = "torch.distributed.run"
_END_SECONDS = 20
_OLD_SECONDS = 86400

_SCRIPT = """#!/bin/sh
exec {python} -IS {stand_in} {socket} {python} {script} "$@"
"""
# Whatever else it starts takes it for its interpreter too.
_PYTHON = """#!/bin/bash
case "$*" in
{patterns}) exec {python} -IS {stand_in} {socket} "$0" "$@" ;;
esac
exec -a "$0" {python} "$@"
"""
# Of an address of a socket.
_MOST_BYTES = 107


def trainers_environment() -> dict[str, str]:
    """Returns the environment of a trainer somewhere."""
    made = environment(os.environ, Path(".."), Path("../trainer.jsonl"))
    return made | {"OMP_NUM_THREADS": "1"}


_can_join = cache(can_join)


class ForkServer:
    """A fork server of one interpreter, started with its first use.

    `programs` are the modules that run in forks; `imported` are those that they import later.
    `environment` is that of the imports, by default a trainer's. `known_as` is the server whose
    Python the interpreter takes for itself, and so starts.
    """

    def __init__(
        self,
        python: Path,
        programs: Sequence[str],
        imported: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        *,
        known_as: "ForkServer | None" = None,
    ) -> None:
        self._interpreter = python
        self._programs = programs
        self._imported = imported
        self._environment = environment
        self._known_as = known_as
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def python(self) -> Path:
        """Returns the Python whose trainers are forks, also within walls."""
        if sys.platform != "linux":
            return self._interpreter
        self._started()
        return self._python

    @property
    def within_walls(self) -> bool:
        """Whether programs within walls can be forks on this machine."""
        return sys.platform == "linux" and self._place() is not None and _can_join()

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
                self._write(program, _SCRIPT, script=str(script))
        return program

    def stop(self) -> None:
        """Ends the server and all of its trainers."""
        if self._process is None:
            return
        try:
            self._process.communicate(timeout=_END_SECONDS)
        finally:
            self._process.kill()
        self._python.unlink(missing_ok=True)
        self._temporary.cleanup()

    def _started(self) -> None:
        with self._lock:
            if self._process is None:
                self._start()

    def _start(self) -> None:
        self._temporary = tempfile.TemporaryDirectory(prefix="windlass-forks-", dir=self._place())
        self._folder = Path(self._temporary.name)
        # Others ask too, each workload by a user of its own.
        self._folder.chmod(0o755)
        shutil.copy(_HERE / "stand_in.py", self._folder)
        # Beside the interpreter, whose libraries it would not find elsewhere.
        self._python = self._interpreter.with_name(f"python-{self._folder.name}")
        self._write_python()
        empty = self._folder / "empty"
        empty.mkdir()
        address = self._folder / "server"
        with socket.socket(socket.AF_UNIX) as listener, (self._folder / "log").open("wb") as log:
            listener.bind(str(address))
            address.chmod(0o666)
            # Whoever comes before the imports are done waits.
            listener.listen(64)
            other = self._known_as
            known_as = other.python if other and other.within_walls else self._interpreter
            self._process = subprocess.Popen(
                [
                    *(known_as, "-P", _HERE / "server.py", str(listener.fileno())),
                    *(*self._programs, *self._imported),
                ],
                executable=self._interpreter,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                pass_fds=[listener.fileno()],
                cwd=empty,
                # Libraries keep paths of their environment: these are a trainer's own wherever
                # it runs, since it does so beside them.
                env=self._environment or trainers_environment(),
            )

    def _place(self) -> Path | None:
        """Where walls show an interpreter's programs; None where an address there is too long."""
        place = self._interpreter.parent
        for left in place.glob("*windlass-forks-*"):
            # Of a run that was killed a day ago or longer.
            if left.stat().st_mtime < time.time() - _OLD_SECONDS:
                shutil.rmtree(left) if left.is_dir() else left.unlink(missing_ok=True)
        longest = place / "windlass-forks-12345678" / "server"
        return place if len(os.fsencode(longest)) <= _MOST_BYTES else None

    def _write_python(self) -> None:
        flags = ("-m", "-u -m", "-P -m")
        patterns = (f'"{flag} {name} "*' for flag in flags for name in self._programs)
        self._write(self._python, _PYTHON, patterns=" | ".join(patterns) or "/")

    def _write(self, program: Path, form: str, *, patterns: str = "", script: str = "") -> None:
        program.write_text(
            form.format(
                patterns=patterns,
                python=shlex.quote(str(self._interpreter)),
                stand_in=shlex.quote(str(self._folder / "stand_in.py")),
                socket=shlex.quote(str(self._folder / "server")),
                script=shlex.quote(script),
            )
        )
        program.chmod(0o755)
