"""Detection of whether a sandbox can be made on this machine, by making one."""

import os
import shutil

from windlass.confinement.accounts import workload_id
from windlass.core.account import Account
from windlass.core.telemetry import logger
from windlass.graders import Ungradable
from windlass.sandbox.bubblewrap import Sandbox
from windlass.sandbox.interpreter import Unreadable, find
from windlass.sandbox.limits import SandboxLimits
from windlass.sandbox.program import NotStarted, Program

log = logger("sandbox")
# The programs that make one, with their packages.
_PACKAGES = {
    "bwrap": "bubblewrap",
    **dict.fromkeys(("prlimit", "choom", "setpriv"), "util-linux"),
}
_TRIAL = "def grade(sample, item):\n    return 1.0\n"


class NoSandbox(Exception):
    """No sandbox can be made here; the message says what is missing."""


def make_sandbox() -> Sandbox:
    """Returns a sandbox in which Python has really run; raises NoSandbox."""
    for program, package in _PACKAGES.items():
        if shutil.which(program) is None:
            raise NoSandbox(f"{package} ({program}) is not installed")
    try:
        account = _account()
        sandbox = Sandbox(shutil.which("bwrap") or "bwrap", account, find(account))
    except Unreadable as error:
        log.warning("sandbox_python_unavailable", error=str(error))
        raise NoSandbox("no Python interpreter can be read by the sandbox's user") from error
    except OSError as error:
        raise NoSandbox(str(error)) from error
    trial = Program(sandbox, _TRIAL, SandboxLimits(seconds=30))
    try:
        trial.start()
        trial.grade("", {})
    except (NotStarted, Ungradable) as error:
        raise NoSandbox(f"bubblewrap cannot make one here: {error}") from error
    finally:
        trial.close()
    return sandbox


def _account() -> Account:
    if os.geteuid() == 0:
        # Nobody's: it owns no file and no database, and has no entry.
        identifier = workload_id("grader")
        return Account("", identifier, identifier)
    return Account("", os.geteuid(), os.getegid())
