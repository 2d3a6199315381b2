"""One object as lines for a person: a field each, objects within it below their names."""

import textwrap
from collections.abc import Iterator
from typing import Any

from windlass.cli.framework.columns import Item, moment, spelled
from windlass.client.display.text import printable

# OpenAI's names of moments that do not end in `_at`.
_MOMENTS = {"created", "estimated_finish"}
_INDENT, _GAP = "  ", 2
# Between a key and its value on one line, where no line ends.
_GLUE = "\N{NO-BREAK SPACE}"
# Values narrower than this are not broken.
_LEAST = 24


def object_lines(item: Item, width: int | None = None) -> Iterator[str]:
    """The lines of an object without its empty fields; `width` breaks values between words."""
    shown = {name: value for name, value in item.items() if not _is_empty(value)}
    widest = max((len(name) for name, value in shown.items() if not _nests(value)), default=0)
    column = widest + 1 + _GAP
    for key, value in shown.items():
        name = printable(key)
        if _nests(value):
            yield f"{name}:"
            within = None if width is None else width - len(_INDENT)
            yield from (_INDENT + line for line in object_lines(value, within))
            continue
        text = _told(name, value)
        if _belongs_below(text, column, width):
            yield f"{name}:"
            yield from (_INDENT + line for line in _broken(text, width and width - len(_INDENT)))
            continue
        first, *rest = _broken(text, width and width - column)
        yield f"{name}:".ljust(column) + first
        yield from (" " * column + line for line in rest)


def _nests(value: Any) -> bool:
    return isinstance(value, dict) and any(
        isinstance(one, dict | list) and not _is_empty(one) for one in value.values()
    )


def _is_empty(value: Any) -> bool:
    if isinstance(value, dict):
        return all(map(_is_empty, value.values()))
    return value is None or value == "" or value == []


def _is_nothing(value: Any) -> bool:
    return value is None or (isinstance(value, dict | list) and _is_empty(value))


def _told(name: str, value: Any) -> str:
    if isinstance(value, dict):
        told = {key: _told(key, one) for key, one in value.items() if not _is_nothing(one)}
        return ", ".join(f"{printable(key)}{_GLUE}{text}" for key, text in told.items())
    if isinstance(value, list) and not any(isinstance(one, dict | list) for one in value):
        return ", ".join(map(spelled, value))
    if isinstance(value, int) and (name.endswith("_at") or name in _MOMENTS):
        return moment(name)({name: value})
    if isinstance(value, float):
        return f"{value:.6g}"
    return spelled(value)


def _belongs_below(text: str, column: int, width: int | None) -> bool:
    """Returns True for a text that has room below its name and not beside it.

    A word stays whole, since it may have to be copied, as the name of a model.
    """
    if width is None or len(text) <= width - column:
        return False
    longest, room = max(map(len, text.split()), default=0), width - column
    return (room < _LEAST or longest > room) and longest <= width - len(_INDENT)


def _broken(text: str, width: int | None) -> list[str]:
    lines = [text]
    if width is not None and _LEAST <= width < len(text):
        lines = textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)
    return [line.replace(_GLUE, " ") for line in lines]
