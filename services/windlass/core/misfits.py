"""Where a document from outside does not fit its type, in words."""

import re

import msgspec

# msgspec writes "what - at `$.where`", and names an unknown field in the text.
_MISFIT = re.compile(r"^(?P<what>.*?)(?: - at `(?:key in )?\$\.?(?P<where>.*)`)?$", re.DOTALL)
_UNKNOWN = re.compile(r"^Object contains unknown field `(?P<field>.*)`$", re.DOTALL)


def place(error: msgspec.ValidationError, *, at: str) -> tuple[str, str]:
    """Returns the path of the field at fault, within a document at path `at`, and what is wrong."""
    text = str(error)
    match = _MISFIT.match(text)
    what, where = (match["what"], match["where"] or "") if match else (text, "")
    if unknown := _UNKNOWN.match(what):
        where = ".".join(filter(None, (where, unknown["field"])))
        what = "there is no such field"
    return ".".join(filter(None, (at, where))), what
