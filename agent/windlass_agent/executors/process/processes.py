"""Processes in sessions of their own: started here or by an earlier agent process."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

import psutil

from windlass.confinement import ConfinedCommand, exit_code, innermost

# Clocks behind a start time differ between readings by less than this.
_SAME_START_SECONDS = 2.0
# A process may fork while the session is gone through.
_PASSES = 3


class Process(Protocol):
    """The leader of a session; its pid is the session's id."""

    @property
    def pid(self) -> int:
        """The id of the process, and of its session."""

    def ended(self) -> bool:
        """Returns True if the leader has ended."""

    def code(self) -> int | None:
        """Exit code of an ended leader, negative for a signal; None when nobody can know."""


class Child:
    """A process that this agent process started."""

    def __init__(self, popen: "subprocess.Popen[bytes]", *, confined: bool = False):
        self._popen = popen
        self._confined = confined

    @property
    def pid(self) -> int:
        """The id of the process, and of its session."""
        return self._popen.pid

    def ended(self) -> bool:
        """Returns True if it has ended, and reaps it."""
        return self._popen.poll() is not None

    def code(self) -> int | None:
        """The exit code of waitpid, or bwrap's of its command; None while it runs."""
        code = self._popen.returncode
        return code if code is None or not self._confined else exit_code(code)

    def reap(self) -> None:
        """Waits until it has ended."""
        self._popen.wait()


class Adopted:
    """A process that an earlier agent process started."""

    def __init__(self, process: psutil.Process):
        self._process = process

    @property
    def pid(self) -> int:
        """The id of the process, and of its session."""
        return self._process.pid

    def ended(self) -> bool:
        """Returns True if the process is gone or a zombie."""
        return not _lives(self._process)

    def code(self) -> int | None:
        """Returns None, since only the parent can read the exit code."""
        return None


def start(
    launch: ConfinedCommand,
    *,
    folder: Path,
    log: Path,
    environment: Mapping[str, str],
    fds: Sequence[int] = (),
    confined: bool = False,
) -> Child:
    """Starts a command in a session of its own with `fds` open; raises OSError."""
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    with os.fdopen(descriptor, "ab") as output:
        popen = subprocess.Popen(
            launch.command,
            cwd=folder,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=(*fds, *launch.descriptors),
        )
    return Child(popen, confined=confined)


def start_time(pid: int) -> float:
    """Returns when a process began, Unix seconds; 0 when it is gone."""
    with contextlib.suppress(psutil.Error):
        return psutil.Process(pid).create_time()
    return 0.0


def find(pid: int, started: float, *, argument: str) -> Adopted | None:
    """Returns the live leader with this pid, unless the pid was reused.

    `argument` is one that no other leader's command line has: pids come again.
    Without a pid (the agent died while starting it) every process is looked at.
    """
    candidates = [pid] if pid else psutil.pids()
    for candidate in candidates:
        with contextlib.suppress(psutil.Error, ProcessLookupError, PermissionError):
            process = psutil.Process(candidate)
            same_start = not pid or abs(process.create_time() - started) < _SAME_START_SECONDS
            leads = os.getsid(candidate) == candidate
            if same_start and leads and argument in process.cmdline() and _lives(process):
                return Adopted(process)
    return None


def terminate(process: Process) -> None:
    """Sends SIGTERM to the leader, or to the command that bwrap runs."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(innermost(process.pid), signal.SIGTERM)


def kill_session(pid: int, started: float) -> None:
    """Kills every process of a leader's session, in all of its process groups."""
    if started < psutil.boot_time():
        # Numbers begin again with the machine.
        return
    now = start_time(pid)
    if now and abs(now - started) >= _SAME_START_SECONDS:
        # The number is another's by now, so nothing of the session can be left.
        return
    for _ in range(_PASSES):
        if not _signal_session(pid):
            return


def _signal_session(session: int) -> bool:
    found = False
    for pid in psutil.pids():
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if os.getsid(pid) == session:
                os.kill(pid, signal.SIGKILL)
                found = True
    return found


def _lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
