"""Sentences for what pydantic found wrong in a request: the field, and what was expected there."""

from collections.abc import Mapping
from typing import Any

from windlass.core.errors import MESSAGE_LENGTH, PARAM_LENGTH
from windlass.gateway.errors import HttpError

# By pydantic's type of error (https://docs.pydantic.dev/latest/errors/validation_errors/).
_EXPECTED = {
    "string_type": "a string",
    "string_sub_type": "a string",
    "string_unicode": "Unicode text",
    "string_too_short": "a string of at least {min_length} characters",
    "string_too_long": "a string of at most {max_length} characters",
    "string_pattern_mismatch": "a string that matches {pattern}",
    "int_type": "an integer",
    "int_parsing": "an integer",
    "int_parsing_size": "a smaller integer",
    "int_from_float": "an integer",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "bool_type": "a boolean",
    "bool_parsing": "a boolean",
    "greater_than": "a number above {gt}",
    "greater_than_equal": "a number of at least {ge}",
    "less_than": "a number below {lt}",
    "less_than_equal": "a number of at most {le}",
    "list_type": "an array",
    "too_short": "at least {min_length} items",
    "too_long": "at most {max_length} items",
    "dict_type": "an object",
    "model_type": "an object",
    "model_attributes_type": "an object",
    "literal_error": "{expected}",
    "enum": "{expected}",
    "union_tag_invalid": "{expected_tags} as {discriminator}",
    "union_tag_not_found": "an object with {discriminator}",
    "none_required": "null",
}
_KINDS = {
    str: "a string",
    bool: "a boolean",
    int: "an integer",
    float: "a number",
    list: "an array",
    dict: "an object",
    type(None): "null",
}
_OURS = "Value error, "
_CODES = {"extra_forbidden": "unknown_parameter", "missing": "missing_required_parameter"}


def validation_error(errors: list[Any], body: Any = None) -> HttpError:
    """Return the answer to a request that does not fit its schema; it names the first field."""
    first = errors[0]
    if first["type"] == "json_invalid":
        return HttpError(400, "We could not parse the JSON body of your request.", code=None)
    param = _field(first, body)
    # A field that may be of several types has an error for each.
    message = _sentence([error for error in errors if _field(error, body) == param], param)
    code = _CODES.get(first["type"], "invalid_value")
    return HttpError(400, message[:MESSAGE_LENGTH], code=code, param=param)


def _sentence(errors: list[Any], param: str | None) -> str:
    first, name = errors[0], param or "body"
    if first["type"] == "missing":
        return f"Missing required parameter: '{name}'." if param else "The request has no body."
    if first["type"] == "extra_forbidden":
        return f"Unknown parameter: '{name}'."
    if first["type"] == "value_error":
        said = str(first["msg"]).removeprefix(_OURS).rstrip(".")
        return f"Invalid value for '{name}': {said}."
    wanted = " or ".join(dict.fromkeys(map(_expected, errors)))
    is_of_type = first["type"].endswith(("_type", "_parsing"))
    got = f", got {_KINDS.get(type(first.get('input')), 'another value')}" if is_of_type else ""
    return f"Invalid value for '{name}': expected {wanted}{got}."


def _expected(error: Mapping[str, Any]) -> str:
    known = _EXPECTED.get(error["type"], "another value")
    return known.format_map(error.get("ctx") or {})


def _field(error: Any, body: Any) -> str | None:
    """The path of the field at fault, without the names that the schema gives its alternatives."""
    source, *path = error["loc"]
    known: list[str] = []
    for part in path:
        inside = isinstance(body, dict) and part in body
        if isinstance(body, list) and isinstance(part, int) and part < len(body):
            inside = True
        if source == "body" and not inside and error["type"] != "missing":
            break
        known.append(str(part))
        body = body[part] if inside else None
    return ".".join(known)[:PARAM_LENGTH] or None
