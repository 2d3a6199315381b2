"""Detection of whether walls can be made on this machine, by making some."""

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Literal

from windlass.confinement import cgroups
from windlass.confinement.launching import Bare, Confinement, Walled
from windlass.confinement.walls import Walls, WorkloadLimits
from windlass.core import telemetry

Mode = Literal["required", "preferred", "off"]
_TOOLS = ("bwrap", "setpriv", "prlimit", "choom", "taskset")
_PACKAGES = "bubblewrap and util-linux"
_SECONDS = 30
_TRIAL = Walls(nests=True)
_TRIAL_NAME = "trial-"
_MEMORY = 2**28

log = telemetry.logger("confinement")


class NoConfinement(OSError):
    """No walls can be made here; the message says what is missing."""


def confinement(mode: Mode, *, nested: bool = False) -> Confinement:
    """The confinement of workloads; raises NoConfinement where walls are required.

    Where they are preferred and cannot be made, workloads run bare, and the log says why. `nested`
    is for who is within walls, which were tried with others inside them.
    """
    if mode == "off":
        return Bare()
    try:
        if nested:
            return Walled("bwrap", inner=True)
        return walled()
    except NoConfinement as error:
        if mode == "required":
            raise
        log.warning("confinement_unavailable", error=str(error))
        return Bare()


@cache
def walled() -> Walled:
    """Walls that have been tried, with walls within them; raises NoConfinement."""
    if missing := [tool for tool in _TOOLS if shutil.which(tool) is None]:
        verb = "is" if len(missing) == 1 else "are"
        raise NoConfinement(f"{', '.join(missing)} {verb} not installed: install {_PACKAGES}")
    outer = Walled(shutil.which("bwrap") or "bwrap")
    inner = Walled(outer.bwrap, inner=True)
    limits = WorkloadLimits(memory=_MEMORY)
    # Several processes may start at once on a machine, and each drops its control groups.
    cgroups.remove_abandoned(_TRIAL_NAME)
    trial = f"{_TRIAL_NAME}{os.getpid()}"
    try:
        with inner.launch(["true"], Walls(tied=True), name=trial, limits=limits) as within:
            # The filter of calls is open in this process alone.
            command = without_filter(within.command)
            with outer.launch(command, _TRIAL, name=trial, limits=limits) as launch:
                _try(launch.command, launch.descriptors)
    except NoConfinement:
        raise
    except OSError as error:
        raise NoConfinement(str(error)) from error
    finally:
        outer.forget(trial)
    return outer


def without_filter(command: tuple[str, ...]) -> tuple[str, ...]:
    """A command of `Walled` without its descriptor."""
    if "--seccomp" not in command:
        return command
    at = command.index("--seccomp")
    return (*command[:at], *command[at + 2 :])


def _try(command: tuple[str, ...], descriptors: tuple[int, ...]) -> None:
    try:
        done = subprocess.run(
            command,
            check=False,
            capture_output=True,
            text=True,
            cwd=Path("/"),
            env={"PATH": "/usr/local/bin:/usr/bin:/bin"},
            stdin=subprocess.DEVNULL,
            timeout=_SECONDS,
            pass_fds=descriptors,
        )
    except subprocess.SubprocessError as error:
        raise NoConfinement(str(error)) from error
    if done.returncode:
        words = done.stderr.strip().rpartition("\n")[2]
        raise NoConfinement(
            "bubblewrap cannot confine processes here, which needs user namespaces: "
            f"{words or f'exit code {done.returncode}'}"
        )
