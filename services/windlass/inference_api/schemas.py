"""Bounds of JSON schemas: what an engine makes of one, it makes while all its requests wait.

The numbers are of vLLM 0.32, which hands a schema to xgrammar 0.2 or llguidance 1.7 on the thread
that serves all its requests: a unit of work takes them at most 0.1 ms. Every object of a schema
is held to them, wherever it is, since a `$ref` may lead to it.
"""

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from windlass.inference_api.errors import ApiError, bad_value, invalid_schema

# Of all schemas of a request: about a second.
WORK = 8192
# Objects and lists within each other; vLLM allows as many.
DEPTH = 64
# Of a list, such as an enum.
LIST_LENGTH = 1000
# Lengths, and numbers of items or properties, that a schema may set.
MOST = 4096
# Properties that may be counted: each number of them is a rule of its own.
COUNTED_PROPERTIES = 32
PATTERN_LENGTH = 512
# Of a pattern once its repetitions are written out; the work grows with the square.
PATTERN_SIZE = 2048
_SIZES_OF_A_UNIT = 500

_ITEMS = ("minItems", "maxItems", "minContains", "maxContains")
_COUNTS = ("minProperties", "maxProperties")
_LENGTHS = ("minLength", "maxLength")
# Of a number of items that is MOST.
_WORK_OF_ITEMS = 64
_WORK = {
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), 10),
    **dict.fromkeys(("multipleOf", "format"), 8),
    **dict.fromkeys(_COUNTS, 100),
}
_TOKEN = re.compile(
    r"(?P<wide>\\.|\[(?:\\.|[^\]\\])*\])|\{\s*(?P<least>\d+)\s*(?:,\s*(?P<most>\d*)\s*)?\}|.",
    re.DOTALL,
)


def check_schemas(schemas: Iterable[tuple[str, object]]) -> None:
    """Refuses schemas of a request, each with its place, that take too much work together.

    Raises ApiError that names the place.
    """
    left = WORK
    for where, schema in schemas:
        waiting: list[tuple[Any, int]] = [(schema, 1)]
        while waiting:
            value, depth = waiting.pop()
            left -= _work(value, where)
            if left < 0:
                raise _refused(where, "It is too large, or the schemas together are")
            if depth > DEPTH:
                raise _refused(where, f"It is nested more than {DEPTH} levels deep")
            inner = value.values() if isinstance(value, dict) else value
            waiting += [(one, depth + 1) for one in inner if isinstance(one, dict | list)]


def read_schema(given: str | dict[str, Any], where: str) -> dict[str, Any]:
    """A schema, or the text of one; raises ApiError."""
    if isinstance(given, dict):
        return given
    try:
        return msgspec.json.decode(given, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise bad_value(f"{where} must be a JSON object, or the text of one", where) from error


def _work(value: dict[str, Any] | list[Any], where: str) -> int:
    """Work for an object or a list by itself; raises ApiError."""
    if isinstance(value, list):
        if len(value) > LIST_LENGTH:
            raise _refused(where, f"A list in it has more than {LIST_LENGTH} values")
        return len(value)
    if "patternProperties" in value:
        raise _refused(where, "'patternProperties' is not supported")
    work = 1 + len(value) + sum(_WORK.get(name, 0) for name in value)
    for name in (*_ITEMS, *_COUNTS, *_LENGTHS):
        most = value.get(name)
        if isinstance(most, int | float) and most > MOST:
            raise _refused(where, f"'{name}' is at most {MOST}")
        if isinstance(most, int | float) and name in _ITEMS:
            work += int(max(most, 0)) * _WORK_OF_ITEMS // MOST
    properties = value.get("properties")
    if isinstance(properties, dict) and len(properties) > COUNTED_PROPERTIES:
        for name in value.keys() & set(_COUNTS):
            raise _refused(where, f"'{name}' is for at most {COUNTED_PROPERTIES} properties")
    pattern = value.get("pattern")
    return work + (_pattern_work(pattern, where) if isinstance(pattern, str) else 0)


def _pattern_work(pattern: str, where: str) -> int:
    if len(pattern) > PATTERN_LENGTH:
        raise _refused(where, f"A 'pattern' in it has more than {PATTERN_LENGTH} characters")
    if "[]" in pattern or "[^]" in pattern:
        raise _refused(where, "A 'pattern' in it has an empty class of characters")
    size = pattern_size(pattern)
    if size > PATTERN_SIZE:
        raise _refused(where, "The repetitions of a 'pattern' in it are too long")
    return size * size // _SIZES_OF_A_UNIT


def pattern_size(pattern: str) -> int:
    """The size of a pattern once its counted repetitions are written out, never too small."""
    groups, last = [0], 0
    for token in _TOKEN.finditer(pattern):
        text = token[0]
        if text == "(":
            groups.append(0)
            last = 0
        elif text == ")" and len(groups) > 1:
            last = groups.pop()
            groups[-1] += last
        elif token["least"]:
            times = max(int(token["most"] or 0), int(token["least"]), 1)
            groups[-1] += last * (times - 1)
            last *= times
        elif text in "*+?":
            groups[-1] += 1
        else:
            last = 2 if token["wide"] or text == "." else 1
            groups[-1] += last
    return sum(groups)


def _refused(where: str, why: str) -> ApiError:
    return invalid_schema(where, f"{why}.")
