"""Nothing that a test run started outlives it, however it ends: by Ctrl-C, kill -9, or its own.

Before its first test pytest goes on in a child process. The parent is where the kernel leaves
every orphan below it (PR_SET_CHILD_SUBREAPER): servers with sessions of their own, embedded
Postgres, workers of xdist. When pytest has ended, the parent ends them and passes its status on.
Clusters stay: they are shared by runs, and end by themselves with their last user.
"""

import ctypes
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import NoReturn

import pytest
from tests.cluster.provision.lease import SUPERVISOR

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
# For what ends in order, such as Postgres; whatever is left then is killed.
_GRACE_SECONDS = 3.0


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Splits the run in two, but for xdist's workers, which are below it already."""
    if sys.platform != "linux" or hasattr(config, "workerinput"):
        return
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1)
    pytest_pid = os.fork()
    if pytest_pid == 0:
        # A parent's place at the reaper is not inherited. Killed, it takes this run along.
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        return
    _outlive(pytest_pid)


def _outlive(pytest_pid: int) -> NoReturn:
    def forward(number: int, frame: FrameType | None) -> None:
        with suppress(ProcessLookupError):
            os.kill(pytest_pid, number)

    # A terminal's Ctrl-C reaches pytest as well.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, forward)
    status = 0
    while True:
        pid, ended = os.waitpid(-1, 0)
        if pid == pytest_pid:
            status = ended
            break
    _end_all()
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code if code >= 0 else 128 - code)


def _end_all() -> None:
    """Asks whatever is left below this process to end, and then kills it."""
    kill_at = time.monotonic() + _GRACE_SECONDS
    asked: set[int] = set()
    while pids := set(_below(os.getpid())):
        late = time.monotonic() > kill_at
        for pid in pids if late else pids - asked:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL if late else signal.SIGTERM)
        asked |= pids
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.02)


def _below(pid: int) -> Iterator[int]:
    """Every living process below one, but for clusters."""
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        children: list[int] = []
        with suppress(OSError):
            children = [int(child) for child in task.read_text().split()]
        for child in children:
            with suppress(OSError):
                command = Path(f"/proc/{child}/cmdline").read_bytes()
                if SUPERVISOR.encode() not in command:
                    yield child
                    yield from _below(child)
