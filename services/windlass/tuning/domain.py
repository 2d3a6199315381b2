"""Domain of tuning: names, paths, metadata and bounds; pure."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import orjson

from windlass.core.errors import InvalidArgument, NotFound
from windlass.core.suggestions import did_you_mean
from windlass.kubernetes.quantities import units
from windlass.tuning_api.trainers.records import ClusterChoice, PodResources

SCHEME = "tinker://"
STATES, SAMPLERS, EXTERNAL = "weights", "sampler_weights", "external_weights"
OPTIMIZERS = frozenset({"adamw", "dimuon"})
# Options that the SDK has no word for, and the kind of each.
EXCLUSIVE, FULL, PROCESSES, REPLICAS, CLUSTER, RESOURCES, IN_ENGINE = (
    "windlass.exclusive", "windlass.full_parameters", "windlass.processes", "windlass.replicas",
    "windlass.cluster", "windlass.resources", "windlass.in_engine",
)  # fmt: skip
OPTIONS = {
    EXCLUSIVE: bool, FULL: bool, PROCESSES: int, REPLICAS: int, CLUSTER: str, RESOURCES: dict,
    IN_ENGINE: bool,
}  # fmt: skip
OPTION_PREFIX = "windlass."
ENDS = frozenset({"success", "errored", "interrupted"})
TEXT_LENGTH = 256
METADATA_BYTES = 2048
MAX_TAGS = 64
MAX_NUMBER = 1_000_000
# Of requests of one client of a sampler: the SDK numbers those of the next one from there.
CLIENT_NUMBERS = 1_000_000_000
MAX_TTL_SECONDS = 10 * 365 * 86_400
MAX_SAMPLES = 1024
MAX_SAMPLED_TOKENS = 1_000_000
MAX_TOPK = 100
MAX_STOPS = 64
LONGEST_WAIT_MS = 30_000
# Of a body or a result that lies in its row; larger ones are objects.
ROW_BYTES = 64 * 1024
MAX_GPUS = 64
MAX_MEMORY = 2**50
_CLUSTER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_ACCELERATOR = re.compile(r"([A-Za-z0-9][A-Za-z0-9._/-]{0,252})?")
_COUNT = re.compile(r"[1-9][0-9]{0,3}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


@dataclass(frozen=True, slots=True)
class CheckpointPath:
    """The parts of `tinker://RUN/weights/NAME`."""

    run_id: str
    is_for_sampler: bool
    name: str
    is_external: bool = False

    def __str__(self) -> str:
        return f"{SCHEME}{self.run_id}/{self.id}"

    @property
    def id(self) -> str:
        """The path within its run."""
        if self.is_external:
            return f"{EXTERNAL}/{self.name}"
        return f"{SAMPLERS if self.is_for_sampler else STATES}/{self.name}"


@dataclass(frozen=True, slots=True)
class Reader:
    """A project that reads checkpoints: its own, and those that its organization's publish."""

    organization_id: str
    project_id: str


def parse_path(path: str) -> CheckpointPath:
    """The parts of a path; raises the NotFound of one that never was."""
    parts = path.removeprefix(SCHEME).split("/")
    kinds = (STATES, SAMPLERS, EXTERNAL)
    if not path.startswith(SCHEME) or len(parts) != 3 or parts[1] not in kinds or "\0" in path:
        # Postgres has no text with a NUL, so that it could not even be looked for.
        raise unknown_checkpoint(path)
    return CheckpointPath(parts[0], parts[1] != STATES, parts[2], parts[1] == EXTERNAL)


def parse_checkpoint_id(run_id: str, checkpoint_id: str) -> CheckpointPath:
    """The path of a checkpoint of a run; raises NotFound."""
    return parse_path(f"{SCHEME}{run_id}/{checkpoint_id}")


def run_id_of(session_id: str, number: int) -> str:
    """The id of a run, which clients make themselves too."""
    return f"{session_id}:train:{valid_number(number)}"


def sampler_id_of(session_id: str, number: int) -> str:
    """The id of a sampler."""
    return f"{session_id}:sample:{valid_number(number)}"


def valid_number(number: int) -> int:
    """A number of a run or a sampler in its session; raises InvalidArgument."""
    if not 0 <= number <= MAX_NUMBER:
        raise InvalidArgument(f"A number must be between 0 and {MAX_NUMBER}.", param="model_seq_id")
    return number


def valid_name(name: str) -> str:
    """The name of a checkpoint, one segment of a path; raises InvalidArgument."""
    if not _NAME.fullmatch(name):
        raise InvalidArgument(
            "A checkpoint's name must be 1 to 128 letters, digits, dots, dashes and underscores, "
            "and begin with a letter or a digit.",
            param="path",
        )
    return name


def valid_ttl(seconds: int) -> int:
    """Seconds that a checkpoint is kept, 0 for ever; raises InvalidArgument."""
    if not 0 <= seconds <= MAX_TTL_SECONDS:
        raise InvalidArgument(
            f"ttl_seconds must be between 0 and {MAX_TTL_SECONDS}.", param="ttl_seconds"
        )
    return seconds


def valid_text(text: str, param: str) -> str:
    """A short text; raises InvalidArgument."""
    if len(text) > TEXT_LENGTH or not all(one.isprintable() for one in text):
        raise InvalidArgument(
            f"{param} must be at most {TEXT_LENGTH} printable characters.", param=param
        )
    return text


def valid_metadata(text: str) -> dict[str, Any]:
    """User metadata; raises InvalidArgument, also for an option that is not known."""
    if len(text.encode()) > METADATA_BYTES:
        raise InvalidArgument(
            f"user_metadata must be at most {METADATA_BYTES} bytes.", param="user_metadata"
        )
    try:
        metadata = orjson.loads(text) if text else {}
        # What is nested too deep is read, and cannot be written again.
        orjson.dumps(metadata)
    except (orjson.JSONDecodeError, orjson.JSONEncodeError):
        metadata = None
    if not isinstance(metadata, dict) or "\\u0000" in text:
        raise InvalidArgument("user_metadata must be an object.", param="user_metadata")
    for key, value in metadata.items():
        if key.startswith(OPTION_PREFIX):
            _require_option(key, value)
    return metadata


def option(metadata: dict[str, Any], key: str) -> bool:
    """An option of validated metadata, which came as such or as text."""
    return metadata.get(key) in (True, "true")


def in_engine(metadata: dict[str, Any]) -> bool:
    """True where validated metadata has a run train the engine of a served model."""
    return option(metadata, IN_ENGINE)


def count_option(metadata: dict[str, Any], key: str) -> int:
    """A number of validated metadata; 0 where there is none."""
    return int(metadata.get(key, 0))


def cluster_choice(metadata: dict[str, Any]) -> ClusterChoice:
    """The cluster of validated metadata, and what its pods are to have there."""
    return ClusterChoice(metadata.get(CLUSTER, ""), pod_resources(metadata.get(RESOURCES, {})))


def pod_resources(value: Any) -> PodResources:
    """Resources by an object, or by its JSON; raises InvalidArgument, which names the field."""
    try:
        asked = orjson.loads(value) if isinstance(value, str) else value
        if not isinstance(asked, dict):
            raise ValueError("it must be an object")
        if unknown := asked.keys() - {"gpus", "accelerator", "memory"}:
            raise ValueError(f"it has no field {min(unknown)!r}")
        gpus, accelerator = asked.get("gpus", 0), asked.get("accelerator", "")
        if isinstance(gpus, bool) or not isinstance(gpus, int) or not 0 <= gpus <= MAX_GPUS:
            raise ValueError(f"gpus must be a whole number from 0 to {MAX_GPUS}")
        if not isinstance(accelerator, str) or not _ACCELERATOR.fullmatch(accelerator):
            raise ValueError("accelerator must be the name of one")
        if accelerator and not gpus:
            raise ValueError("accelerator needs gpus")
        memory = asked.get("memory", "")
        found = units(memory) if isinstance(memory, str) else 0
        if "memory" in asked and not 0 < found < MAX_MEMORY:
            raise ValueError("memory must be a quantity such as 64Gi")
    except ValueError as error:
        text = f"{RESOURCES} is not valid: {error}."
        raise InvalidArgument(text, param="user_metadata") from error
    return PodResources(gpus, accelerator, found)


def _require_option(key: str, value: Any) -> None:
    if key not in OPTIONS:
        raise InvalidArgument(
            f"user_metadata has no option {key!r}.{did_you_mean(key, OPTIONS)}",
            reason="unknown_option",
            param="user_metadata",
        )
    if OPTIONS[key] is str:
        if not isinstance(value, str) or not _CLUSTER.fullmatch(value):
            raise InvalidArgument(f"{key} must be the name of a cluster.", param="user_metadata")
    elif OPTIONS[key] is dict:
        pod_resources(value)
    elif OPTIONS[key] is int:
        if isinstance(value, bool) or not _COUNT.fullmatch(str(value)):
            raise InvalidArgument(
                f"{key} must be a whole number from 1 to 9999.", param="user_metadata"
            )
    elif value not in (True, False, "true", "false"):
        raise InvalidArgument(f"{key} must be true or false.", param="user_metadata")


def unknown_base_model(name: str, known: Iterable[str] = ()) -> InvalidArgument:
    """The error of a base model that nothing here trains."""
    return InvalidArgument(
        f"No such base model: {name[:256]!r}.{did_you_mean(name, known)}",
        reason="unknown_base_model",
        param="base_model",
    )


def unknown_session(session_id: str) -> NotFound:
    """The error of a session that is not the project's."""
    return NotFound(f"No such session: {session_id[:TEXT_LENGTH]!r}.", param="session_id")


def unknown_run(run_id: str) -> NotFound:
    """The error of a run that is not the project's."""
    return NotFound(f"No such model: {run_id[:TEXT_LENGTH]!r}.", param="model_id")


def unknown_sampler(sampler_id: str) -> NotFound:
    """The error of a sampler that is not the project's."""
    return NotFound(f"No such sampler: {sampler_id[:TEXT_LENGTH]!r}.", param="sampling_session_id")


def unknown_operation(operation_id: str) -> NotFound:
    """The error of a request that is not the project's."""
    return NotFound(f"No such request: {operation_id[:TEXT_LENGTH]!r}.", param="request_id")


def unknown_checkpoint(path: str) -> NotFound:
    """The error of a path that is not the project's."""
    return NotFound(f"No such checkpoint: {path[:TEXT_LENGTH]!r}.", param="path")
