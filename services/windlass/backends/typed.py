"""Documents from outside, decoded into types."""

import re
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from windlass.backends.backend import InvalidConfig

T = TypeVar("T")

# msgspec writes "what - at `$.where`", and names an unknown field in the text.
_MISFIT = re.compile(r"^(?P<what>.*?)(?: - at `(?:key in )?\$\.?(?P<where>.*)`)?$", re.DOTALL)
_UNKNOWN = re.compile(r"^Object contains unknown field `(?P<field>.*)`$", re.DOTALL)


def decode(document: Mapping[str, Any], to: type[T], *, at: str) -> T:
    """Decodes a document found at path `at`; raises InvalidConfig naming the field at fault."""
    try:
        return msgspec.convert(dict(document), type=to)
    except msgspec.ValidationError as error:
        raise _invalid(str(error), at) from None


def _invalid(text: str, at: str) -> InvalidConfig:
    match = _MISFIT.match(text)
    what, where = (match["what"], match["where"] or "") if match else (text, "")
    if unknown := _UNKNOWN.match(what):
        where = ".".join(filter(None, (where, unknown["field"])))
        what = "there is no such field"
    return InvalidConfig(".".join(filter(None, (at, where))), what)
