"""Fields beside a job's document, checked by the document's own bounds. Pure."""

from collections.abc import Mapping

import msgspec

from windlass.core.errors import InvalidArgument
from windlass.jobs_api.request import Metadata, ModelName

REQUEST_ID_LENGTH = 128
LATEST = 2**40


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
        raise InvalidArgument(f"{param} must be Unix seconds.", param=param)
    return seconds


def request_id(value: str) -> str:
    """An idempotency key; raises InvalidArgument."""
    if len(value) > REQUEST_ID_LENGTH or not (value.isprintable() and value.isascii()):
        raise InvalidArgument(
            f"The idempotency key must be at most {REQUEST_ID_LENGTH} printable ASCII characters.",
            param="request_id",
        )
    return value
