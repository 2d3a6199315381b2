"""Validation errors of outside documents, in words."""

import re

import msgspec

_AT = " - at `"
_UNKNOWN = "Object contains unknown field `"
_KINDS = {
    "str": "a string",
    "bool": "a boolean",
    "int": "an integer",
    "float": "a number",
    "array": "an array",
    "object": "an object",
}
_COUNTED = {"str": "characters", "array": "items", "object": "pairs"}
_BOUNDS = {">=": "at least", "<=": "at most", ">": "more than", "<": "less than"}


def place(error: msgspec.ValidationError, *, at: str) -> tuple[str, str]:
    """Returns the path of the field at fault, within a document at path `at`, and what is wrong."""
    # msgspec writes "what - at `$.where`", and names an unknown field in the text.
    text = str(error)
    what, found, where = text.rpartition(_AT)
    if not found:
        what, where = text, ""
    where = where.rstrip("`").removeprefix("key in ").removeprefix("$").removeprefix(".")
    if what.startswith(_UNKNOWN):
        where = ".".join(filter(None, (where, what.removeprefix(_UNKNOWN).rstrip("`"))))
        what = "unknown field"
    return ".".join(filter(None, (at, where))), what


def words(what: str) -> str:
    """The misfit that msgspec found, in plain words; any other text unchanged."""
    if missing := re.fullmatch(r"Object missing required field `(.+)`", what):
        return f"the field {missing[1]!r} is missing"
    if value := re.fullmatch(r"Invalid (?:enum )?value (.+)", what):
        return f"{value[1]} is not one of the allowed values"
    found = re.fullmatch(r"Expected `([^`]+)`(?:, got `([^`]+)`)?(.*)", what, re.DOTALL)
    if found is None:
        return what
    kinds, got, bound = found[1].split(" | "), found[2], found[3].strip()
    expected = " or ".join(_KINDS.get(kind, kind) for kind in kinds)
    if length := re.fullmatch(r"of length (>=|<=) (\d+)", bound):
        expected += f" of {_BOUNDS[length[1]]} {length[2]} {_COUNTED.get(kinds[0], 'items')}"
    elif limit := re.fullmatch(r"(>=|<=|>|<) (\S+)", bound):
        expected += f" of {_BOUNDS[limit[1]]} {limit[2]}"
    elif bound.startswith("matching regex "):
        expected += f" that matches {bound.removeprefix('matching regex ')}"
    return f"expected {expected}" + (f", got {_KINDS.get(got, got)}" if got else "")
