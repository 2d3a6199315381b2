"""Discovery of installed trainers, and so of the backends and settings that runners can use."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from windlass.backends import BackendError, LLMBackend, get_backend
from windlass.backends.registry import backend_names
from windlass.core import telemetry

_PROBE_SECONDS = 60
# Packages without which TRL trains all the same, but for some settings.
_LIBRARIES = ("bitsandbytes", "deepspeed")
# What runs a TorchTune job, in the releases that go together; torch itself is slow to import.
_TORCHTUNE = """
from importlib import metadata, util
wanted = {"torchtune": "0.6.1", "torchao": "0.15.0", "torchdata": "0.11.0"}
for name, version in wanted.items():
    found = metadata.version(name)
    if found.partition("+")[0] != version:
        raise SystemExit(f"{name} is {found}, not {version}")
for name in ("torch", "transformers", "windlass_agent"):
    if util.find_spec(name) is None:
        raise SystemExit(f"there is no {name}")
"""

log = telemetry.logger("trainers")


def runnable_backends(torchtune_python: Path | None) -> list[str]:
    """Returns the backends whose jobs can run here, by name.

    `torchtune_python` is the interpreter of an environment with the extra `torchtune`; None means
    this one. A backend of another distribution runs wherever it is installed.
    """
    has_framework = {
        "trl": find_spec("trl") is not None,
        "torchtune": _has_torchtune(torchtune_python),
    }
    found = []
    for name in backend_names():
        try:
            backend = get_backend(name)
        except BackendError as error:
            log.error("backend_unavailable", backend=name, exc_info=error)
            continue
        if _takes_jobs(backend) and has_framework.get(backend.framework, True):
            found.append(name)
    return found


def installed_libraries() -> list[str]:
    """Returns which of the packages are installed here that some settings of jobs need."""
    return [name for name in _LIBRARIES if find_spec(name) is not None]


def _takes_jobs(backend: type[LLMBackend]) -> bool:
    """Returns True if a backend reads the documents of jobs; others make TrainJobs alone."""
    own: Any = backend.from_document
    inherited: Any = LLMBackend.from_document
    return own.__func__ is not inherited.__func__


def _has_torchtune(python: Path | None) -> bool:
    if python is None and find_spec("torchtune") is None:
        return False
    command = [str(python or sys.executable), "-I", "-c", _TORCHTUNE]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_PROBE_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        log.error("torchtune_unavailable", python=command[0], reason=str(error))
        return False
    if done.returncode:
        reason = done.stderr.strip().rpartition("\n")[2]
        log.error("torchtune_unavailable", python=command[0], reason=reason)
    return done.returncode == 0
