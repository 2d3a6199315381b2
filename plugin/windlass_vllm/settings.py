"""Settings of training inside an engine, read from the environment of its processes."""

import os
import re
from collections.abc import Mapping

import msgspec

from windlass_vllm.refusal import Refused

PLUGIN = "windlass_vllm"
_PREFIX = "WINDLASS_VLLM_"
_SHORTEST_KEY = 16
# Of the 107 bytes that a socket's path may have, `/windlass-vllm-…/worker-…` takes 47.
LONGEST_FOLDER = 60
_RUN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class EngineTrainingSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of one engine; `from_environment` raises Refused for what none takes."""

    key: str = ""
    """Key that callers send as a bearer token; without one every call is refused."""
    folder: str = "/dev/shm"  # noqa: S108  # One folder of mode 0700 is made in it.
    """Folder in memory in which the engine's weights are shared."""
    threads: int = 1
    """Threads of the training worker."""
    memory_mib: int = 0
    """Most private memory of the training worker in MiB; 0 sets no limit."""
    checkpoints: str = ""
    """Folder under which each engine makes one of its own for checkpoints; empty allows none."""
    run: str = ""
    """Name of the engine's own folder; empty names it by the model."""
    fence_seconds: int = 60
    """Most seconds for which the training worker may hold serving still."""
    niceness: int = 10
    """By how much the training worker yields to serving, 0..19."""

    def __post_init__(self) -> None:
        if self.key and len(self.key) < _SHORTEST_KEY:
            message = f"{_PREFIX}KEY has fewer than {_SHORTEST_KEY} characters"
            raise Refused("invalid_setting", message)
        if len(os.fsencode(self.folder)) > LONGEST_FOLDER:
            message = f"{_PREFIX}FOLDER has more than {LONGEST_FOLDER} bytes: no socket fits in it"
            raise Refused("invalid_setting", message)
        if not (1 <= self.threads <= 1024 and self.memory_mib >= 0 and 0 <= self.niceness <= 19):
            message = f"{_PREFIX}THREADS, MEMORY_MIB or NICENESS is outside its bounds"
            raise Refused("invalid_setting", message)
        if not 1 <= self.fence_seconds <= 3600 or (self.run and not _RUN.fullmatch(self.run)):
            message = f"{_PREFIX}FENCE_SECONDS or RUN is outside its bounds"
            raise Refused("invalid_setting", message)


def from_environment(variables: Mapping[str, str] | None = None) -> EngineTrainingSettings:
    """Returns the settings that `WINDLASS_VLLM_…` variables give; raises Refused."""
    found = os.environ if variables is None else variables
    names = {one: _PREFIX + one.upper() for one in EngineTrainingSettings.__struct_fields__}
    given = {name: found[one] for name, one in names.items() if one in found}
    try:
        return msgspec.convert(given, EngineTrainingSettings, strict=False)
    except msgspec.ValidationError as error:
        raise Refused("invalid_setting", f"{_PREFIX}…: {error}") from error


def is_named(variables: Mapping[str, str] | None = None) -> bool:
    """Returns whether `VLLM_PLUGINS` names this plugin; unset, vLLM would load it unasked."""
    found = os.environ if variables is None else variables
    return PLUGIN in (found.get("VLLM_PLUGINS") or "").split(",")


def passed_on() -> dict[str, str]:
    """Returns the environment of a training worker: the engine's, without the key."""
    return {name: value for name, value in os.environ.items() if name != f"{_PREFIX}KEY"}
