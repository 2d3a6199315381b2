"""Refusals of a body, by the path of the field at fault: `integrations.0.wandb.project`."""

import json
import math
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from windlass.core import misfits
from windlass.core.errors import InvalidArgument

# What a pattern means, for people.
_PATTERNS = {
    "suffix": "must be at most 64 letters, digits, '.', '_' and '-', and begin with a "
    "letter or digit",
    "backend": "is not a valid name",
    "runtime": "is not a valid name",
    "model": "contains a character that cannot be printed",
    "training_file": "contains a character that cannot be printed",
    "validation_file": "contains a character that cannot be printed",
    "file": "contains a character that cannot be printed",
}
_OF_PATHS = "must have 1 to 128 characters, and a name none of / \\ # ? % :"


def of(error: msgspec.ValidationError, body: bytes, kind: type) -> InvalidArgument:
    """The refusal for msgspec's error about a body of a type."""
    reason, _, at = str(error).partition(" - at ")
    path = re.sub(r"\[(\d+)\]", r".\1", at.rpartition("$")[2].rstrip("`")).lstrip(".")
    field = re.search(r"field `(.+)`\Z", reason)
    param = ".".join(filter(None, (path, field[1] if field else "")))
    if reason.startswith("Object contains unknown field"):
        return InvalidArgument(
            f"Unknown parameter: '{param}'.", reason="unknown_parameter", param=param
        )
    if field:
        return InvalidArgument(
            f"Missing required parameter: '{param}'.",
            reason="missing_required_parameter",
            param=param,
        )
    if param.startswith("metadata"):
        param = _pair(body)
    param = param.removesuffix("[...]")
    wrong = misfits.words(misfits.with_choices(reason, at, kind))
    if "matching regex" in reason:
        wrong = _PATTERNS.get(param.rpartition(".")[2], _OF_PATHS)
    return InvalidArgument(f"Invalid value for '{param or 'body'}': {wrong}.", param=param or None)


def _pair(body: bytes) -> str:
    """The first pair of the metadata that is too long, which msgspec does not name.

    Raises InvalidArgument for a body that is no JSON after it, which msgspec did not come to.
    """
    try:
        pairs = json.loads(body).get("metadata")
    except (ValueError, RecursionError) as error:
        raise unreadable(error) from None
    if isinstance(pairs, dict):
        for key, value in pairs.items():
            if key and (len(key) > 64 or not isinstance(value, str) or len(value) > 512):
                return f"metadata.{key}"
    return "metadata"


def refuse_unstorable(body: bytes) -> None:
    """Raises InvalidArgument for a number or text that Python's JSON has and no column takes."""
    try:
        for path, value in _leaves(json.loads(body), ""):
            if isinstance(value, float) and not math.isfinite(value):
                raise InvalidArgument(f"{path} is not a valid JSON number.", param=path)
            if isinstance(value, str) and "\0" in value:
                raise InvalidArgument(f"{path} contains a NUL character.", param=path)
            if isinstance(value, str) and re.search("[\ud800-\udfff]", value):
                raise InvalidArgument(f"{path} contains half of a surrogate pair.", param=path)
    except (ValueError, RecursionError) as error:
        raise unreadable(error) from None


def unreadable(error: Exception) -> InvalidArgument:
    """The refusal of a body that is no JSON."""
    if isinstance(error, RecursionError):
        return InvalidArgument("The body is nested too deeply.", reason="invalid_json")
    return InvalidArgument(
        "We could not parse the JSON body of your request.", reason="invalid_json"
    )


def _leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Every value and key that is no object and no array, with its path."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield path, key
            yield from _leaves(inner, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _leaves(inner, f"{path}.{index}")
    else:
        yield path, value
