"""Servers and commands of Windlass without a second of imports: forks of one warm process.

Whatever reads its environment when an interpreter starts, or a module is imported, is started
cold; and so is a test of starting, of a terminal, of processes, memory or processor time.
"""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Protocol

from tests.support.processes.forked import TORCHRUN, ForkServer
from tests.support.processes.forked.own import Fork, run

from windlass.backends.trl.config import ENTRY_MODULE

# The script that an installation has on its path.
PROGRAM = [str(Path(sys.executable).parent / "windlass")]
_TARGETS = (
    "users",
    "rbac",
    "files",
    "models",
    "clusters",
    "jobs",
    "federation",
    "inference",
    "tuning",
)
_IMPORTED = (
    *("windlass.cli", "windlass.serve", "windlass.embedded_agent", "uvloop"),
    *("windlass_agent.__main__", "windlass_agent.agent"),
    str(Path(__file__).with_name("command_tree.py")),
    *(f"windlass.{name}.module" for name in (*_TARGETS, "usage", "sessions", "gateway")),
)
# Variables that the interpreter, the loader, the C library, and libraries when they are imported
# read once.
_READ_AT_START = ("PYTHON", "LD_", "LC_", "LANG", "MALLOC_", "GRPC_", "SSL_CERT_")
_PATH, _CUSTOM = "PYTHONPATH", "sitecustomize.py"
_READ_AT_IMPORT = ("windlass.core.killpoints",)

_SCRIPTS = ("sft", "dpo", "kto", "reward", "distillation", "grpo", "rloo")
_ENGINE = "windlass_agent.engines.builtin"

# Trainers and engines, also of agents: what these take for their interpreter is this server's
# Python, which starts the programs below as forks, within walls too.
LIBRARIES = ForkServer(
    Path(sys.executable),
    [ENTRY_MODULE, TORCHRUN, _ENGINE, *(f"trl.scripts.{name}" for name in _SCRIPTS)],
    [f"{_ENGINE}.api.routes", f"{_ENGINE}.generation.loading"],
)
# A test may change the variables before the warm process starts.
_ENVIRONMENT = dict(os.environ)
FORKS = ForkServer(Path(sys.executable), (), _IMPORTED, _ENVIRONMENT, known_as=LIBRARIES)


class Process(Protocol):
    """A process that was started: a fork, or one of subprocess."""

    @property
    def pid(self) -> int:
        """Returns its id."""

    def poll(self) -> int | None:
        """Returns its exit code; None while it runs."""

    def wait(self, timeout: float | None = None) -> int:
        """Returns its exit code at its end."""

    def send_signal(self, sig: int, /) -> None:
        """Sends a signal, unless it has ended."""

    def terminate(self) -> None:
        """Sends SIGTERM."""

    def kill(self) -> None:
        """Sends SIGKILL."""


def start(
    program: str,
    *arguments: str,
    environment: Mapping[str, str],
    log: IO[bytes],
    session: bool = False,
    cold: bool = False,
) -> Process:
    """Starts a package or a script, perhaps in a session of its own, with its output in a log.

    Only those of a `cold` one are its children when it starts trainers and engines.
    """
    is_script = program.endswith(".py")
    if cold or not _fits(environment):
        return subprocess.Popen(
            [sys.executable, *(() if is_script else ("-m",)), program, *arguments],
            stdout=log,
            stderr=log,
            start_new_session=session,
            env=environment,
        )
    entry = {"script": program} if is_script else {"module": f"{program}.__main__"}
    with Path(os.devnull).open("rb") as nothing:
        return Fork(
            FORKS.address,
            {
                **entry,
                "arguments": arguments,
                "read_at_import": _READ_AT_IMPORT,
                "path": _path(environment),
            },
            streams=(nothing.fileno(), log.fileno(), log.fileno()),
            environment=environment,
            folder=Path.cwd(),
            session=session,
            python=LIBRARIES.python if LIBRARIES.within_walls else None,
        )


def command(
    *arguments: str,
    given: str,
    environment: Mapping[str, str],
    folder: Path,
    timeout: float,
    cold: bool = False,
) -> "subprocess.CompletedProcess[str]":
    """Runs the script to its end in a folder, with its streams captured."""
    if cold or not _fits(environment):
        return subprocess.run(
            [*PROGRAM, *arguments],
            input=given,
            env=environment,
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=timeout,
        )
    return run(
        FORKS.address,
        {"script": PROGRAM[0], "arguments": arguments, "path": _path(environment)},
        given=given,
        timeout=timeout,
        environment=environment,
        folder=folder,
    )


def searching(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns a shell's environment in which the script that its path leads to runs as a fork."""
    here, folders = Path(PROGRAM[0]).parent, environment.get("PATH", "").split(os.pathsep)
    if str(here) not in folders or not _fits(environment):
        return dict(environment)
    folders.insert(folders.index(str(here)), str(FORKS.program(Path(PROGRAM[0])).parent))
    return {**environment, "PATH": os.pathsep.join(folders)}


def on_terminal(
    *arguments: str, terminal: int, environment: Mapping[str, str], folder: Path, cold: bool = False
) -> Process:
    """Starts the script with all of its streams at a terminal, which is not its controlling one."""
    if cold or not _fits(environment):
        return subprocess.Popen(
            [*PROGRAM, *arguments],
            env=environment,
            cwd=folder,
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
        )
    return Fork(
        FORKS.address,
        {"script": PROGRAM[0], "arguments": arguments, "path": _path(environment)},
        streams=[terminal] * 3,
        environment=environment,
        folder=folder,
    )


def drawing(
    script: Path,
    *arguments: str,
    output: int,
    terminal: int,
    environment: Mapping[str, str],
    folder: Path,
) -> Process:
    """Starts a script of ours in a session of its own, whose stderr is a terminal."""
    with Path(os.devnull).open("rb") as nothing:
        streams = (nothing.fileno(), output, terminal)
        if not _fits(environment):
            return subprocess.Popen(
                [sys.executable, str(script), *arguments],
                env=environment,
                cwd=folder,
                stdin=streams[0],
                stdout=streams[1],
                stderr=streams[2],
                start_new_session=True,
            )
        return Fork(
            FORKS.address,
            {"script": str(script), "arguments": arguments, "path": _path(environment)},
            streams=streams,
            environment=environment,
            folder=folder,
            session=True,
        )


def _fits(environment: Mapping[str, str]) -> bool:
    """Whether an interpreter in this environment would be what the warm process is."""

    def read(variables: Mapping[str, str]) -> Mapping[str, str]:
        found = {k: v for k, v in variables.items() if k.startswith(_READ_AT_START)}
        return {k: v for k, v in found.items() if k != _PATH}

    begins_otherwise = any(Path(folder, _CUSTOM).exists() for folder in _path(environment))
    same = not begins_otherwise and read(environment) == read(_ENVIRONMENT)
    return sys.platform == "linux" and same


def _path(environment: Mapping[str, str]) -> list[str]:
    """Folders that an interpreter would look for modules in, and the warm process would not."""
    wanted = environment.get(_PATH, "")
    return [] if wanted == _ENVIRONMENT.get(_PATH, "") else wanted.split(os.pathsep)
