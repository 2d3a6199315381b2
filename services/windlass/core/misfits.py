"""Where a document from outside does not fit its type, in words."""

import msgspec

_AT = " - at `"
_UNKNOWN = "Object contains unknown field `"


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
        what = "there is no such field"
    return ".".join(filter(None, (at, where))), what
