"""Validation errors of outside documents, in words."""

import re
from typing import Any

import msgspec
from msgspec import inspect

_AT = " - at `"
_UNKNOWN = "Object contains unknown field `"
_VALUE = re.compile(r"Invalid (?:enum )?value ")
_CHOICES = "; choices: "
# A field, or an item of an array or object, in a path of msgspec's.
_STEP = re.compile(r"\.(\w+)|(\[[^]]*\])")
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


def place(error: msgspec.ValidationError, *, at: str, of: Any) -> tuple[str, str]:
    """Returns the path of the field at fault, within a document of a type at path `at`, and what
    is wrong.
    """
    # msgspec writes "what - at `$.where`", and names an unknown field in the text.
    text = str(error)
    what, found, where = text.rpartition(_AT)
    if not found:
        what, where = text, ""
    what = with_choices(what, where, of)
    where = where.rstrip("`").removeprefix("key in ").removeprefix("$").removeprefix(".")
    if what.startswith(_UNKNOWN):
        where = ".".join(filter(None, (where, what.removeprefix(_UNKNOWN).rstrip("`"))))
        what = "unknown field"
    return ".".join(filter(None, (at, where))), what


def with_choices(what: str, where: str, of: Any) -> str:
    """Returns what msgspec found wrong at a path, with the values that are allowed there."""
    if not _VALUE.match(what):
        return what
    kinds, choices = _alternatives(inspect.type_info(of)), list[str]()
    for name, item in _STEP.findall(where):
        tagged = [one for one in kinds if isinstance(one, inspect.StructType)]
        choices = [str(one.tag) for one in tagged if one.tag_field and one.tag_field == name]
        kinds = [inner for one in kinds for inner in _inside(one, name, is_item=bool(item))]
    for one in kinds:
        if isinstance(one, inspect.EnumType):
            choices += [str(member.value) for member in one.cls]
        elif isinstance(one, inspect.LiteralType):
            choices += map(str, one.values)
    return f"{what}{_CHOICES}{', '.join(choices)}" if choices else what


def _alternatives(kind: inspect.Type) -> list[inspect.Type]:
    if isinstance(kind, inspect.Metadata):
        return _alternatives(kind.type)
    if isinstance(kind, inspect.UnionType):
        return [inner for one in kind.types for inner in _alternatives(one)]
    return [kind]


def _inside(kind: inspect.Type, name: str, *, is_item: bool) -> list[inspect.Type]:
    if isinstance(kind, inspect.StructType) and not is_item:
        found = [field.type for field in kind.fields if field.encode_name == name]
    elif isinstance(kind, inspect.DictType):
        found = [kind.value_type]
    elif isinstance(kind, inspect.CollectionType):
        found = [kind.item_type]
    else:
        found = []
    return [inner for one in found for inner in _alternatives(one)]


def words(what: str) -> str:
    """The misfit that msgspec found, in plain words; any other text unchanged."""
    if missing := re.fullmatch(r"Object missing required field `(.+)`", what):
        return f"the field {missing[1]!r} is missing"
    if found := _VALUE.match(what):
        value, _, choices = what[found.end() :].partition(_CHOICES)
        if not choices:
            return f"{value} is not one of the allowed values"
        # The SDK has documents too, and not what compares names.
        from windlass.core.suggestions import closest

        meant = closest(value.strip("'"), choices.split(", "))
        return f"{value} is not one of {choices}" + (f" (did you mean {meant!r}?)" if meant else "")
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
