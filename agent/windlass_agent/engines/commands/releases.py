"""Releases of engines that live in Python environments of their own."""

import re
import subprocess
from pathlib import Path

from windlass.core import telemetry

_SECONDS = 60
_PROBE = "from importlib.metadata import version; import sys; print(version(sys.argv[1]))"

log = telemetry.logger("engines")


def has_release(python: Path, package: str, oldest: tuple[int, ...]) -> bool:
    """Returns True if an environment has a package that is new enough; logs what it has or lacks.

    `python` is the environment's interpreter, `oldest` as many numbers of a release as matter.
    """
    reason = ""
    try:
        done = subprocess.run(
            [str(python), "-I", "-c", _PROBE, package],
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        reason = str(error)
    else:
        found = done.stdout.strip()
        numbers = tuple(map(int, re.findall(r"\d+", found)[: len(oldest)]))
        if len(numbers) < len(oldest):
            reason = done.stderr.strip().rpartition("\n")[2] or f"it has no {package}"
        elif numbers < oldest:
            reason = f"{found} is too old"
    if reason:
        log.error("engine_unavailable", engine=package, python=str(python), reason=reason)
        return False
    log.info("engine_found", engine=package, python=str(python), version=found)
    return True
