"""Fields beside a job's document, and its size, checked by bounds. Pure."""

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from windlass.bounds import IDEMPOTENCY_KEY_LENGTH, LATEST
from windlass.core.errors import InvalidArgument
from windlass.jobs.domain.job import Spec
from windlass.jobs_api.request import Metadata, ModelName

# Of graders and settings in a job's object, so that a message of 1 MiB can hold it.
MAX_OBJECT_BYTES = 900 * 1024


def name(value: str, param: str) -> str:
    """A model's name, fit to be looked up; raises InvalidArgument."""
    try:
        return msgspec.convert(value, ModelName)
    except msgspec.ValidationError:
        raise InvalidArgument(f"{param} is not a valid name of a model.", param=param) from None


def metadata(pairs: Mapping[str, str]) -> dict[str, str]:
    """The pairs that a list of jobs is filtered by; raises InvalidArgument."""
    if any("\0" in key + value for key, value in pairs.items()):
        raise InvalidArgument("metadata contains a NUL character.", param="metadata")
    try:
        return msgspec.convert(dict(pairs), Metadata)
    except msgspec.ValidationError as error:
        raise InvalidArgument(f"metadata: {error}.", param="metadata") from None


def moment(seconds: int, param: str) -> int:
    """Unix seconds; raises InvalidArgument for those of no calendar."""
    if not 0 <= seconds <= LATEST:
        raise InvalidArgument(f"{param} must be Unix seconds, at most {LATEST}.", param=param)
    return seconds


def request_id(value: str) -> str:
    """An idempotency key; raises InvalidArgument."""
    if len(value) > IDEMPOTENCY_KEY_LENGTH or not (value.isprintable() and value.isascii()):
        raise InvalidArgument(
            f"The idempotency key must be at most {IDEMPOTENCY_KEY_LENGTH} printable ASCII "
            "characters.",
            param="request_id",
        )
    return value


def require_size(spec: Spec) -> None:
    """Raises InvalidArgument for a job whose object is larger than a page of jobs may be."""
    # What a job is asked for is in its configuration once more.
    asked = (spec.grader, spec.hyperparameters, spec.extra, spec.document)
    beside = (spec.integrations, spec.evaluation.grader if spec.evaluation else {})
    size = 2 * sum(map(_size, asked)) + sum(map(_size, beside))
    if size > MAX_OBJECT_BYTES:
        raise InvalidArgument(
            f"The job's graders and settings are too large: its object would have {size} bytes "
            f"of them, and may have {MAX_OBJECT_BYTES}. Shorten the graders.",
            param="method",
        )


def _size(document: Any) -> int:
    return len(json.dumps(document))
