"""What a tenant may ask for: every field of a request checked and bounded. Pure."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from windlass import graders
from windlass.backends import InvalidConfig, methods
from windlass.core.errors import InvalidArgument
from windlass.jobs.domain import Keep, Resources
from windlass.jobs.integrations import Integration, parse

DOCUMENT_BYTES = 64 * 1024
# A python grader brings its source.
GRADER_BYTES = 512 * 1024
NAME_LENGTH = 512
SUFFIX_LENGTH = 64
METADATA_PAIRS = 16
METADATA_KEY = 64
METADATA_VALUE = 512
REQUEST_ID_LENGTH = 128
INTEGRATIONS_MOST = 5
CHECKPOINTS_MOST = 1000
GRADER = "method.reinforcement.grader"
_SUFFIX = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_BACKEND = re.compile(r"[a-z][a-z0-9_-]{0,31}")
EXPORTS = ("merged", "gguf")
_WINDLASS = frozenset(
    {"method", "runtime", "backend", "config", "resources", "checkpoints", "export"}
    | {"document", "schema_version"}
)
_RESOURCES = {"gpus": 1024, "memory_bytes": 2**50, "cpus": 4096, "processes": 64}
NODES_MOST = 64


def name(value: str, param: str) -> str:
    """A model's or file's name, fit to be looked up; raises InvalidArgument."""
    if not 1 <= len(value) <= NAME_LENGTH or not value.isprintable():
        raise InvalidArgument(f"{param} has 1 to {NAME_LENGTH} printable characters.", param=param)
    return value


def suffix(value: str) -> str:
    """A suffix that is safe in a name and in a path; raises InvalidArgument."""
    fits = len(value) <= SUFFIX_LENGTH and ".." not in value
    if value and not (fits and _SUFFIX.fullmatch(value)):
        raise InvalidArgument(
            f"suffix has up to {SUFFIX_LENGTH} letters, digits, '.', '_' and '-', and begins "
            "with a letter or digit.",
            param="suffix",
        )
    return value


def method(openai: str, ours: object) -> str:
    """OpenAI's method or ours, `supervised` for neither; raises InvalidArgument."""
    try:
        return methods.choose(openai, ours)
    except InvalidConfig as error:
        raise InvalidArgument(f"{error}.", param=error.field) from error


def grader(data: bytes, *, method: str, runs_python: bool) -> dict[str, Any]:
    """What rewards answers, where the method learns from rewards; raises InvalidArgument."""
    given = document(data, GRADER, most=GRADER_BYTES)
    if method not in methods.GRADED:
        if given:
            raise InvalidArgument(f"{GRADER} is of reinforcement alone.", param=GRADER)
        return {}
    if not given:
        raise InvalidArgument(f"{GRADER} is needed: what rewards an answer.", param=GRADER)
    try:
        found = graders.parse(given, at=GRADER)
    except graders.InvalidGrader as error:
        raise InvalidArgument(f"{error}.", param=error.field) from error
    if graders.programs(found) and not runs_python:
        raise InvalidArgument(
            "python graders are switched off in this installation (graders.python).",
            param=graders.type_field(found, GRADER),
        )
    return graders.to_document(found)


def metadata(pairs: Mapping[str, str]) -> dict[str, str]:
    """OpenAI's bounds on metadata; raises InvalidArgument."""
    if len(pairs) > METADATA_PAIRS:
        raise InvalidArgument(f"metadata has at most {METADATA_PAIRS} pairs.", param="metadata")
    for key, value in pairs.items():
        if not 1 <= len(key) <= METADATA_KEY or len(value) > METADATA_VALUE:
            raise InvalidArgument(
                f"A metadata key has 1 to {METADATA_KEY} characters, a value up to "
                f"{METADATA_VALUE}.",
                param="metadata",
            )
        if "\0" in key or "\0" in value:
            raise InvalidArgument("metadata holds a NUL character.", param="metadata")
    return dict(pairs)


def request_id(value: str) -> str:
    """An idempotency key; raises InvalidArgument."""
    if len(value) > REQUEST_ID_LENGTH or not (value.isprintable() and value.isascii()):
        raise InvalidArgument("The idempotency key is not printable ASCII.", param="request_id")
    return value


def seed(value: int) -> int:
    """A seed that trainers take: 32 bits; raises InvalidArgument."""
    if not 0 <= value < 2**32:
        raise InvalidArgument("seed lies between 0 and 4294967295.", param="seed")
    return value


def document(data: bytes, param: str, *, most: int = DOCUMENT_BYTES) -> dict[str, Any]:
    """A JSON object, `{}` for none; raises InvalidArgument."""
    value = _json(data, param, most)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise InvalidArgument(f"{param} must be an object.", param=param)
    return value


def integrations(data: bytes) -> list[Integration]:
    """Trackers of experiments, without anything secret; raises InvalidArgument."""
    value = _json(data, "integrations")
    if isinstance(value, list) and len(value) > INTEGRATIONS_MOST:
        raise InvalidArgument(
            f"integrations is a list of at most {INTEGRATIONS_MOST}.", param="integrations"
        )
    return parse([] if value is None else value)


@dataclass(frozen=True, slots=True)
class Windlass:
    """What a request asks for beyond OpenAI's fields; resources are per node."""

    method: object
    # Empty: wherever there is the backend, or will be.
    runtime: str
    backend: str
    config: dict[str, Any]
    resources: Resources
    keep: Keep | None
    exports: tuple[str, ...]
    document: dict[str, Any]
    schema_version: int


def windlass(data: bytes, *, default_backend: str) -> Windlass:
    """Method, runtime, backend, its settings, resources, checkpoints; raises InvalidArgument."""
    value = document(data, "windlass")
    for key in value:
        if key not in _WINDLASS:
            raise InvalidArgument(f"windlass has no field {key[:64]!r}.", param="windlass")
    runtime = _runtime(value)
    # A runtime goes by the name of its backend.
    backend = value.get("backend", runtime or default_backend)
    if not isinstance(backend, str) or not _BACKEND.fullmatch(backend):
        raise InvalidArgument("windlass.backend is not a name.", param="windlass.backend")
    config = value.get("config") or {}
    if not isinstance(config, dict):
        raise InvalidArgument("windlass.config must be an object.", param="windlass.config")
    resources, nodes = _resources(value.get("resources") or {})
    if nodes and config.setdefault("num_nodes", nodes) != nodes:
        raise InvalidArgument(
            "windlass.resources.nodes and windlass.config.num_nodes differ.",
            param="windlass.resources.nodes",
        )
    return Windlass(
        method=value.get("method"),
        runtime=runtime,
        backend=backend,
        config=config,
        resources=resources,
        keep=_keep(value.get("checkpoints")),
        exports=_exports(value.get("export")),
        document=_document(value),
        schema_version=value.get("schema_version", 1),
    )


def _runtime(windlass: dict[str, Any]) -> str:
    runtime = windlass.get("runtime", "")
    at = "windlass.runtime"
    if "runtime" in windlass and not (isinstance(runtime, str) and _BACKEND.fullmatch(runtime)):
        raise InvalidArgument(f"{at} is not a name.", param=at)
    if runtime and windlass.get("backend", runtime) != runtime:
        raise InvalidArgument(f"{at} is of another backend than windlass.backend.", param=at)
    return str(runtime)


def _document(windlass: dict[str, Any]) -> dict[str, Any]:
    """A backend's whole configuration, which leaves nothing for others to say."""
    given = windlass.get("document")
    at = "windlass.document"
    if given is None and "schema_version" not in windlass:
        return {}
    if not isinstance(given, dict) or not given:
        raise InvalidArgument(f"{at} is an object: a backend's configuration.", param=at)
    if type(windlass.get("schema_version", 1)) is not int:
        raise InvalidArgument(
            "windlass.schema_version is a whole number.", param="windlass.schema_version"
        )
    for key in ("method", "config"):
        if windlass.get(key) is not None:
            raise InvalidArgument(f"windlass.{key} and document cannot both be given.", param=at)
    return given


def check_exports(exports: tuple[str, ...], *, method: str) -> None:
    """Raises InvalidArgument for a form that what the method makes cannot have."""
    if "gguf" in exports and method in methods.SCORING:
        raise InvalidArgument(
            "windlass.export: gguf is for models that write; a reward model can be merged.",
            param="windlass.export",
        )


def _exports(value: Any) -> tuple[str, ...]:
    if value is None:
        return ()
    known = isinstance(value, list) and all(each in EXPORTS for each in value)
    if not known or len(set(value)) != len(value):
        raise InvalidArgument(
            f"windlass.export is a list with some of {', '.join(EXPORTS)}, each once.",
            param="windlass.export",
        )
    return tuple(value)


def _keep(value: Any) -> Keep | None:
    if value is None:
        return None
    at = "windlass.checkpoints"
    if not isinstance(value, dict) or "keep_last" not in value:
        raise InvalidArgument(
            f"{at} is an object with keep_last, and keep_best if you like.", param=at
        )
    for key, count in value.items():
        if key not in ("keep_last", "keep_best"):
            raise InvalidArgument(f"{at} has no field {key[:64]!r}.", param=at)
        least = 1 if key == "keep_last" else 0
        if type(count) is not int or not least <= count <= CHECKPOINTS_MOST:
            raise InvalidArgument(
                f"{at}.{key} is a whole number from {least} to {CHECKPOINTS_MOST}.",
                param=f"{at}.{key}",
            )
    return Keep(last=value["keep_last"], best=value.get("keep_best", Keep().best))


def _resources(value: Any) -> tuple[Resources, int]:
    """What each node needs, and how many nodes; 0 leaves it to the backend."""
    if not isinstance(value, dict):
        raise InvalidArgument("windlass.resources must be an object.", param="windlass.resources")
    for key, amount in value.items():
        most = NODES_MOST if key == "nodes" else _RESOURCES.get(key)
        if most is None:
            raise InvalidArgument(
                f"windlass.resources has no field {key[:64]!r}.", param="windlass.resources"
            )
        if type(amount) is not int or not 0 <= amount <= most:
            raise InvalidArgument(
                f"windlass.resources.{key} is a whole number from 0 to {most}.",
                param=f"windlass.resources.{key}",
            )
    each = Resources(**{key: amount for key, amount in value.items() if key != "nodes"})
    if each.processes and each.gpus and each.processes != each.gpus:
        raise InvalidArgument(
            "windlass.resources.processes is for jobs without GPUs: each GPU has one process.",
            param="windlass.resources.processes",
        )
    return each, value.get("nodes", 0)


def _json(data: bytes, param: str, most: int = DOCUMENT_BYTES) -> Any:
    if not data:
        return None
    if len(data) > most:
        raise InvalidArgument(f"{param} exceeds {most} bytes.", param=param)
    try:
        value = json.loads(data, parse_constant=_refuse_constant)
        # A NUL or half a surrogate pair is JSON, but no text that can be stored.
        stored = json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(f"{param} is not valid JSON.", param=param) from error
    if b"\\u0000" in stored:
        raise InvalidArgument(f"{param} holds a NUL character.", param=param)
    return value


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
